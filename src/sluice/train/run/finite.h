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

/// Error{kDiverged} if one of the first `rows` rows of a prediction has a NaN. The message has the
/// row, `first` + its index, and whether the inputs of the row are finite. `inputs` has a row for
/// each of these rows from row `offset` on.
void check_scores(std::string_view name, const HostTensor& prediction, int64_t rows, int64_t first,
                  const data::Element& inputs, int64_t offset);

}  // namespace sluice::train
