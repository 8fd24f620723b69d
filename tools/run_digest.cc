#include "tools/run_digest.h"

#include <map>

#include "sluice/base/hash.h"

namespace sluice::tool {

std::string run_digest(const Session& session, const train::FitResult& fit) {
  Digest digest;
  digest.add(std::as_bytes(std::span(fit.losses)));
  for (const std::vector<float>& part : fit.parts) digest.add(std::as_bytes(std::span(part)));
  session.each_variable(
      [&](const std::string&, const HostTensor& value) { digest.add(value.bytes()); });
  return "fma-" + digest.hex();
}

}  // namespace sluice::tool
