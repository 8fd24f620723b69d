#pragma once
#include <initializer_list>
#include <vector>

#include "sluice/train/cut/ids.h"

namespace sluice::train {

/// Returns the blocks of these numbers.
inline std::vector<BlockId> blocks(std::initializer_list<int> numbers) {
  return {numbers.begin(), numbers.end()};
}

/// Returns the device of each stage.
inline Ids<StageId, DeviceId> on_devices(std::initializer_list<int> numbers) {
  return Ids<StageId, DeviceId>(std::vector<DeviceId>(numbers.begin(), numbers.end()));
}

}  // namespace sluice::train
