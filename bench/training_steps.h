#pragma once
#include "bench/steps.h"
#include "sluice/data/feed_queues.h"
#include "sluice/sluice.h"
#include "sluice/train/step_arrays.h"

namespace sluice::bench {

/// A training program with its session, and arrays of zeros or the queues of its options.
class TrainingSteps {
 public:
  TrainingSteps(const train::Network& network, const nn::Optimizer& optimizer,
                const train::Options& step, const SessionOptions& session)
      : training_(train::build_training(ir_, network, optimizer, step)),
        session_(ir_, session),
        arrays_(training_),
        binding_(session_.bind(arrays_.inputs(training_), arrays_.outputs(training_), "train")) {
    if (training_.infeed) session_.bind_feed(*training_.infeed, step.infeed);
  }

  /// Returns the median of the seconds of `steps` steps.
  double seconds(int64_t steps) { return time_steps(session_, binding_, steps).median_seconds; }

 private:
  Ir ir_;
  train::Training training_;
  Session session_;
  train::StepArrays arrays_;
  Binding binding_;
};

}  // namespace sluice::bench
