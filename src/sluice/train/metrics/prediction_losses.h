#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sluice/data/dataset.h"
#include "sluice/session/options.h"
#include "sluice/train/fit.h"
#include "sluice/train/network.h"
#include "sluice/train/run/finite.h"

namespace sluice::train {

/// Values of a metric by name of a loss or prediction. Absent: no label counts.
using NamedValues = std::vector<std::pair<std::string, std::optional<double>>>;

/// Adds the metric `name` of the first of some losses or predictions, and if there are several,
/// "name/NAME" of each, with the other members of `metric`. Absent values are left out.
void add_metric(Evaluation& evaluation, const std::string& name, const NamedValues& values,
                const Metric& metric = {});

/// Computes the losses that a network returns in evaluation from its predictions and its fields. A
/// loss that reads something else is left out. The programs of the model need no labels for it.
class PredictionLosses {
 public:
  /// Calls have micro-batches of `samples` samples. The losses are computed on one worker of
  /// `device`, in memory in addition to the model's.
  PredictionLosses(const Network& network, const DeviceChoice& device, int64_t samples);
  ~PredictionLosses();

  /// Adds the losses of a call. `rows` has the fields of the call's samples and the number of those
  /// that count; `results` has the predictions of all micro-batches or of the last ones.
  /// Error{kDiverged} for a loss that is NaN, with its samples and the reason (reason_of_row()).
  void add(const data::Element& results, const PredictedRows& rows,
           std::span<const ClassLabels> labels);
  /// Adds the losses and their perplexities to an evaluation.
  void add_metrics(Evaluation& evaluation);

  struct Source;

 private:
  struct Program;
  /// Returns the program for micro-batches of some samples; null if no loss can be computed.
  Program* program(int64_t samples);

  const Network& network_;
  DeviceChoice device_;
  int64_t samples_;
  /// Keyed by the number of samples of a micro-batch.
  std::map<int64_t, std::unique_ptr<Program>> programs_;
  std::map<std::string, std::pair<double, double>> sums_;  ///< Sum and weight of each loss.
};

}  // namespace sluice::train
