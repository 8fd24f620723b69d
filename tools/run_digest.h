#pragma once
#include <string>
#include <vector>

#include "sluice/session/session.h"

namespace sluice::tool {

/// XXH3-128 of the losses, then of all variables by path, prefixed "fma-": every instruction set that this build
/// dispatches to computes with fused multiply-adds.
std::string run_digest(const Session& session, const std::vector<float>& losses);

}  // namespace sluice::tool
