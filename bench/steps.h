#pragma once
#include <cstdint>

#include "sluice/session/session.h"

namespace sluice::bench {

/// What some steps took and did.
struct StepTimes {
  double median_seconds = 0;
  double least_seconds = 0;
  double flops = 0;  ///< Of a step.
  double bytes = 0;  ///< Of the operands of a step's kernels and transfers.
};

/// Times `steps` runs of a program one by one, after some that are not counted (as many, at most
/// 20).
StepTimes time_steps(Session& session, Binding& binding, int64_t steps);

}  // namespace sluice::bench
