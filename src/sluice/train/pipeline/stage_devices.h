#pragma once
#include <vector>

namespace sluice::train {

/// Returns the device of each stage: `devices`, or 0 to stages - 1 if it is empty. Error{kUsage} if
/// it is not one number of at least 0 for each stage.
std::vector<int> devices_of(const std::vector<int>& devices, int stages);

}  // namespace sluice::train
