#pragma once
#include <string>
#include <vector>

#include "sluice/session/session.h"

namespace sluice::tool {

/// Returns the XXH3-128 of the losses, then of all variables by path. The prefix "fma-" says that
/// every instruction set of this build computes with fused multiply-adds.
std::string run_digest(const Session& session, const std::vector<float>& losses);

}  // namespace sluice::tool
