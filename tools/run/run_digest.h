#pragma once
#include <string>

#include "sluice/session/session.h"
#include "sluice/train/checkpoints/run.h"

namespace sluice::tool {

/// Returns the XXH3-128 of the losses of a run (Run::losses_hash), then of all variables by path.
/// A run that was resumed has the digest of one that never stopped. The prefix "fma-" means that
/// every instruction set of this build computes with fused multiply-adds.
std::string run_digest(const Session& session, const train::Run& run);

}  // namespace sluice::tool
