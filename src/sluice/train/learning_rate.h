#pragma once
#include <cstdint>

namespace sluice::train {

/// How a learning rate falls after the warm-up, with p = (step − warmup) / (steps − warmup).
enum class Decay {
  kConstant,  ///< Stays at the peak.
  kLinear,    ///< peak · (1 − p)
  kCosine,    ///< peak · (1 + cos(π·p)) / 2 (Loshchilov and Hutter, 2017, without restarts).
};

/// Learning rates of a run, step by step, for a program whose rate is a stream
/// (Options::learning_rate).
struct LearningRateSchedule {
  Decay decay = Decay::kConstant;
  double peak = 0.05;        ///< The rate after the warm-up.
  int64_t warmup_steps = 0;  ///< Step s of these has the rate peak · (s + 1) / warmup_steps.
  int64_t steps = 1;         ///< Steps of the run; the decay ends behind the last one.

  /// The rate of step `step`, counted from 0. Behind the last step it is that of the end: the peak
  /// or 0.
  double at(int64_t step) const;
};

}  // namespace sluice::train
