#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "sluice/train/pipeline/schedule.h"

namespace sluice::train {

/// Formats the slots of an order as a table. The header has the numbers of the slots, from 1. A row
/// is a stage, `S0`. If `devices` has the device of each stage, a row is a device with all of its
/// stages, `D0`. A cell is `F1` or `B1` with the micro-batch, from 1, or `.` for an idle slot.
/// Tasks of one cell are joined by `+` in the order in which they run. Error{kUsage} if
/// `micro_batches` is below 1, or if `devices` is neither empty nor a number for each stage.
std::string schedule_table(const PipelineOrder& order, int64_t micro_batches,
                           const Ids<StageId, DeviceId>& devices = {});

}  // namespace sluice::train
