#pragma once
#include <cstdint>
#include <optional>
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

/// Returns the reason why a loss of the item that `loader` returned last is not finite, or the
/// remedy, for the end of a message: "; label 10 in row 3 is outside 0..9", "; field 'x' in row 5
/// is nan", or "; a smaller learning rate may help". Empty if nothing is known: the first update
/// has not changed any weight. Rows are those of the dataset, counted from 0. `labels`: the array
/// of the labels; null if there is none.
std::string reason_of_loss(const Ir& ir, const data::BatchLoader& loader, const data::Element& item,
                           const HostTensor* labels, int64_t update);

/// Rows of a prediction, and the samples that they belong to.
struct PredictedRows {
  int64_t count = 0;            ///< The first rows of the prediction, which are checked.
  int64_t first = 0;            ///< Index of the first one in the dataset.
  const data::Element& inputs;  ///< Has a row for each one.
  int64_t offset = 0;           ///< Row of `inputs` of the first one.
};

/// Error{kDiverged} if one of these rows of a prediction has a NaN. The message has the row, and
/// the reason if it is known: a label in `labels` that is no class of the losses of `ir`, or an
/// input that is not finite. `labels`: those of `inputs`; null if there are none.
void check_finite_rows(std::string_view name, const HostTensor& prediction,
                       const PredictedRows& rows, const Ir& ir, const HostTensor* labels);

}  // namespace sluice::train
