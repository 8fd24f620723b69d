#include "tools/run_digest.h"

#include <map>

#include "sluice/base/hash.h"

namespace sluice::tool {

std::string run_digest(const Session& session, const std::vector<float>& losses) {
  Digest digest;
  digest.add(std::as_bytes(std::span(losses)));
  session.each_variable(
      [&](const std::string&, const HostTensor& value) { digest.add(value.bytes()); });
  return "fma-" + digest.hex();
}

}  // namespace sluice::tool
