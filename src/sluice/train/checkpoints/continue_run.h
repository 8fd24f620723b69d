#pragma once
#include "sluice/data/loader.h"
#include "sluice/train/checkpoints/run.h"
#include "sluice/train/model_state.h"

namespace sluice::train {

/// Whether the samples themselves are compared, which makes some of them.
enum class SampleHash : uint8_t { kNo, kYes };

/// Returns the samples of a loader and their order.
DataOrder order_of(const data::BatchLoader& loader, SampleHash hash);

/// An item of a loader.
struct ItemPosition {
  int64_t epoch = 0;
  int64_t item = 0;  ///< Index in the epoch.
};

/// Sets the position of a run to the item that it reads next, and returns it, as place_run(). The
/// loader does not start there.
ItemPosition next_item(internal::ModelState& state, const data::BatchLoader& loader,
                       SampleHash hash);

/// Starts a loader at the item that a run reads next: the first one that begins at or after the
/// run's position. Error{kUsage} naming what differs if the run was resumed and must have other
/// data.
void place_run(internal::ModelState& state, data::BatchLoader& loader, SampleHash hash);

}  // namespace sluice::train
