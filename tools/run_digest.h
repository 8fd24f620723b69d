#pragma once
#include <string>

#include "sluice/train/fit.h"

namespace sluice::tool {

/// Returns the XXH3-128 of the losses of every micro-batch (of several losses, the weighted sums
/// and then each loss), then of all variables by path. The prefix "fma-" means that every
/// instruction set of this build computes with fused multiply-adds.
std::string run_digest(const Session& session, const train::FitResult& fit);

}  // namespace sluice::tool
