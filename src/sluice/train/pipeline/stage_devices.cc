#include "sluice/train/pipeline/stage_devices.h"

#include <numeric>

#include "sluice/base/error.h"

namespace sluice::train {

std::vector<int> devices_of(const std::vector<int>& devices, int stages) {
  if (devices.empty()) {
    std::vector<int> own(static_cast<size_t>(stages));
    std::iota(own.begin(), own.end(), 0);
    return own;
  }
  require(devices.size() == static_cast<size_t>(stages),
          "pipeline: devices must name one device for each of {} stages, got {}", stages,
          devices.size());
  for (const int device : devices)
    require(device >= 0, "pipeline: devices must be numbers of at least 0, got {}", device);
  return devices;
}

}  // namespace sluice::train
