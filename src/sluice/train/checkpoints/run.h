#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sluice/train/options.h"

namespace sluice::train {

/// An option by its name, and the text of its value.
using NamedOption = std::pair<std::string, std::string>;

/// The samples of a training and their order.
struct DataOrder {
  std::optional<int64_t> samples = {};  ///< Samples of an epoch; absent: not known or without end.
  bool shuffled = false;                ///< Whether each epoch has an order of its own.
  uint64_t seed = 0;                    ///< Seed of that order.
  std::string fields = {};  ///< Names and specs of the fields of a sample; empty: no data yet.
  /// XXH3-128 of samples that are spread over epoch 0; empty if they cannot be read by number.
  std::string hash = {};

  bool operator==(const DataOrder&) const = default;
};

/// The best validation of a run (FitOptions::patience, FitOptions::save_best).
struct BestValidation {
  std::string metric = {};           ///< Name of the metric that is compared.
  std::optional<double> value = {};  ///< Its value; absent before the first validation.
  int64_t updates = 0;               ///< Updates before it.
  int64_t bad = 0;                   ///< Validations since then.
  bool operator==(const BestValidation&) const = default;
};

/// All that decides the next bit of a training besides its program and its variables. A model that
/// trains has one (TrainingModel::run()); fit() and each call of the model move it on. With the
/// variables it is a checkpoint (train/checkpoints/checkpoints.h), which any strategy continues.
struct Run {
  /// Names the run, so that checkpoints and logs of another one are not mixed with its own; random,
  /// without effect on its bits. Empty before the first one.
  std::string id = {};
  // Counts since the first update of the run.
  int64_t updates = 0;
  int64_t calls = 0;
  int64_t micro_batches = 0;  ///< Sum of all replicas.
  int64_t samples = 0;        ///< Sum of all replicas.

  // Position in the data.
  int64_t epoch = 0;          ///< Number of the epoch, from 0.
  int64_t epoch_samples = 0;  ///< Samples since the begin of that epoch.
  DataOrder data = {};        ///< The last data that the run was placed in.

  uint64_t seed = 0;                         ///< Seed of random operators, such as dropout.
  std::optional<double> learning_rate = {};  ///< Rate of the last update.
  std::vector<double> coefficients = {};     ///< Streamed coefficients of the last update.
  PlateauState plateau = {};                 ///< State of Decay::kPlateau.
  BestValidation best = {};
  int64_t losses = 0;  ///< Losses that calls returned.
  /// Hash chain over them: the hash of a loss covers the hash before it, the weighted sum, and each
  /// loss. Empty before the first one.
  std::string losses_hash = {};

  std::string log = {};  ///< Its log in the folder for logs: "." or "run-2"; empty: none.

  /// Options that decide the bits of the training, in ascending order of their names.
  std::vector<NamedOption> options = {};

  bool operator==(const Run&) const = default;

  /// XXH3-128 of `options`.
  std::string options_hash() const;
};

/// Formats a run as a JSON object.
std::string to_json(const Run& run);
/// Reads such a file. Error{kBadFile} with the member for another name or value.
Run read_run(const std::string& path);

}  // namespace sluice::train
