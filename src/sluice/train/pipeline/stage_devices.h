#pragma once
#include "sluice/train/cut/ids.h"

namespace sluice::train {

/// Returns the device of each stage: `devices`, or 0 to stages - 1 if it is empty. Error{kUsage} if
/// it is not one number of at least 0 for each stage.
Ids<StageId, DeviceId> devices_of(const Ids<StageId, DeviceId>& devices, int stages);

}  // namespace sluice::train
