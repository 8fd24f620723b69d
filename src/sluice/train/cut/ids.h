#pragma once
#include "sluice/base/ids/ids.h"
#include "sluice/exe/ids.h"

namespace sluice::train {

/// Index of a block in the order of the cut (Cut::blocks).
using BlockId = Id<struct BlockTag>;
/// Index of a stage in the order of the network.
using StageId = Id<struct StageTag>;
/// Index of a row: one of several equal blocks, or of their variables.
using RowId = Id<struct RowTag, int64_t>;
/// Index of a device of a replica.
using DeviceId = exe::DeviceId;

}  // namespace sluice::train
