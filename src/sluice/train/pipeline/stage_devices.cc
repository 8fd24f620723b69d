#include "sluice/train/pipeline/stage_devices.h"

#include "sluice/base/error.h"

namespace sluice::train {

Ids<StageId, DeviceId> devices_of(const Ids<StageId, DeviceId>& devices, int stages) {
  if (devices.empty()) {
    Ids<StageId, DeviceId> own;
    for (int s = 0; s < stages; ++s) own.push_back(DeviceId(s));
    return own;
  }
  require(devices.end_id() == stages,
          "pipeline: devices must name one device for each of {} stages, got {}", stages,
          devices.size());
  for (const DeviceId device : devices)
    require(device.valid(), "pipeline: devices must be numbers of at least 0, got {}",
            device.value());
  return devices;
}

}  // namespace sluice::train
