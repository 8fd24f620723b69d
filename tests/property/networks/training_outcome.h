#pragma once
#include <memory>
#include <string>

#include "../random_graph_run.h"
#include "sluice/interp/run_op.h"
#include "sluice/train/training_step.h"

namespace sluice::property {

/// One way to train a network.
struct TrainingWay {
  train::Options step = {};
  int replicas = 1;
  int threads = 1;
  int devices = 1;
  int io_queues = 1;
  int optimizer = 0;                        ///< SGD, SGD with momentum, Adam or AdamW.
  std::shared_ptr<std::string> order = {};  ///< Text of an order that was drawn; else null.

  std::string text() const;
};

nn::Optimizer optimizer_of(const TrainingWay& way);

/// Builds the training step of a network.
train::Training built(Ir& ir, const train::Network& network, const TrainingWay& way);

/// Trains for two updates and evaluates in a session, which proves its plan. Returns all results,
/// then all variables. Error{kInternal} if the measured bytes differ from the planned ones.
Outcome in_session(const train::Network& network, const TrainingWay& way);

/// Does the same in the interpreter.
Outcome in_interpreter(const Ir& ir, const train::Training& t, int updates = 2,
                       Precision precision = Precision::kFloat);

/// Returns the results without those of the program "eval".
Outcome without_evaluation(const Outcome& all, const train::Training& t);

/// Like difference(), but permits that sums of doubles were added in another order: two values may
/// differ by 2e-5 of the largest value of all. Describes the first difference; empty without one.
std::string numeric_difference(const Outcome& want, const Outcome& got);

}  // namespace sluice::property
