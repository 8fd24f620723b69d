#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "sluice/base/host_tensor.h"
#include "sluice/data/dataset.h"
#include "sluice/session/bindings.h"
#include "sluice/train/training_step.h"

namespace sluice::train {

/// Sets the seeds of a run of `updates` updates that begins with update `update`: one for each
/// micro-batch of each replica. The seeds of an update do not depend on the run that it is in.
void fill_seeds(HostTensor& seeds, uint64_t run_seed, int64_t update, int64_t updates);

/// Sets the learning rates of a run: one for each update, the same for all replicas.
void fill_rates(HostTensor& rates, std::span<const double> updates);

/// Returns an array for each of Training::coefficients, of its value.
std::vector<HostTensor> coefficient_arrays(const Training& training);

/// Returns an item of `rows` samples that has all samples of a smaller one. They are repeated from
/// the first one on to complete it.
data::Element completed(const data::Element& item, int64_t rows);

/// Host arrays for a run of the program "train": an entry for each micro-batch, update or run,
/// with a row for each replica. Streams of feeds do not have arrays.
struct StepArrays {
  explicit StepArrays(const Training& training);

  /// Copies the samples of a run to the fields: array i to field i, with as many elements.
  void fill(const data::Element& samples);
  /// Calls fill_seeds().
  void seed(uint64_t run_seed, int64_t update);
  /// Sets the learning rate of all updates of the next run, if the program streams it.
  void set_learning_rate(double rate);
  /// Returns the input streams of the program with their arrays.
  std::vector<StreamInput> inputs(const Training& training) const;
  /// Returns the output streams of the program with their arrays.
  std::vector<StreamOutput> outputs(const Training& training);

  std::vector<HostTensor> fields;  ///< One for each of Training::fields.
  std::vector<HostTensor> once;    ///< One for each of Training::inputs.
  HostTensor seeds;
  int64_t updates;  ///< Updates of a run.
  HostTensor learning_rate;
  std::vector<HostTensor> coefficients;  ///< One for each of Training::coefficients, of its value.
  std::vector<HostTensor> losses;        ///< One for each of Training::losses.
  std::vector<HostTensor> loss_sums;     ///< One for each of Training::loss_sums.
  std::vector<HostTensor> predictions;   ///< One for each of Training::predictions.
};

}  // namespace sluice::train
