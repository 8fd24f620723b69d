#include "tools/run/run_digest.h"

#include <map>

#include "sluice/base/hash.h"

namespace sluice::tool {

std::string run_digest(const Session& session, const train::Run& run) {
  Digest digest;
  digest.add(std::as_bytes(std::span(run.losses_hash.data(), run.losses_hash.size())));
  session.each_variable(
      [&](const std::string&, const HostTensor& value) { digest.add(value.bytes()); });
  return "fma-" + digest.hex();
}

}  // namespace sluice::tool
