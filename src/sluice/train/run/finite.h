#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "sluice/data/loader.h"
#include "sluice/session/session.h"
#include "sluice/train/training_step.h"

namespace sluice::train {

/// Checks the weights, running variables and optimizer state of a training on the host, a part at a
/// time. `updates`: those so far, for the message; absent if they are not known. Each process of a
/// group makes the call. Error{kDiverged} for the first element that is not finite, with its
/// variable.
void check_finite(const Session& session, const Training& training,
                  std::optional<int64_t> updates = {});

/// Error{kDiverged} for the first element of a variable that is not finite. `bytes` are its value
/// in C order, or a part of it from element `begin` on.
void check_finite_value(std::string_view path, DType dtype, std::span<const std::byte> bytes,
                        int64_t begin, std::optional<int64_t> updates);

/// Labels with the number of classes that their losses have.
struct ClassLabels {
  const HostTensor* labels;  ///< int32, with the samples as first axis.
  int64_t classes = 0;
  std::optional<int64_t> ignore_index = {};  ///< Prediction::ignore_index.
};

/// Returns the reason why a loss of the item that `loader` returned last is not finite, or the
/// remedy, for the end of a message: "; label 10 in row 3 is outside 0..9", "; field 'x' in row 5
/// is nan", or "; a smaller learning rate may help". Empty if nothing is known: the first update
/// has not changed any weight. Rows are indices in the dataset. `first`: the first
/// labels of the model, null if there are none, which losses of `ir` read. `labels`: all labels,
/// for programs whose losses have several numbers of classes.
std::string reason_of_loss(const Ir& ir, const data::BatchLoader& loader, const data::Element& item,
                           const HostTensor* first, std::span<const ClassLabels> labels,
                           int64_t update);

/// Rows of a prediction, and the samples that they belong to.
struct PredictedRows {
  int64_t count = 0;            ///< The first rows of the prediction, which are checked.
  int64_t first = 0;            ///< Index of the first one in the dataset.
  const data::Element& inputs;  ///< Has a row for each one.
  int64_t offset = 0;           ///< Row of `inputs` of the first one.
};

/// Returns the reason why row `row` of some inputs has a loss that is not finite, for the end of a
/// message: "; label 7 is outside 0..2" or "; its field 'x' has nan". Empty if it is not known.
std::string reason_of_row(const data::Element& inputs, int64_t row,
                          std::span<const ClassLabels> labels);

/// Error{kDiverged} if one of these rows of a prediction has a NaN. The message has the row, and
/// reason_of_row(). `labels` are the labels of `inputs`.
void check_finite_rows(std::string_view name, const HostTensor& prediction,
                       const PredictedRows& rows, std::span<const ClassLabels> labels);

}  // namespace sluice::train
