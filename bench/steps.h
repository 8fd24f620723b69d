#pragma once
#include <cstdint>

#include "sluice/session/session.h"

namespace sluice::bench {

/// Time and work of some steps.
struct StepTimes {
  double median_seconds = 0;
  double min_seconds = 0;
  double flops = 0;  ///< Flops of a step.
  double bytes = 0;  ///< Bytes of the operands of a step's kernels and transfers.
};

/// Times `steps` runs of a program one by one, after equally many (at most 20) that are not
/// counted.
StepTimes time_steps(Session& session, Binding& binding, int64_t steps);

}  // namespace sluice::bench
