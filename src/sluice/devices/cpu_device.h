#pragma once
#include <cstdint>

#include "sluice/session/options.h"

namespace sluice {

struct CpuOptions {
  int64_t memory = -1;  ///< Budget of device memory in bytes; -1: no budget.
  int threads = 0;      ///< Workers; 0: as many as this process has usable cores.
};

/// Returns the CPU as a device of a session. Error{kUsage} for negative options.
DeviceChoice cpu_device(const CpuOptions& options = {});

/// Makes the CPU the device of sessions whose options do not name a device.
inline const bool kCpuIsDefault = set_default_device([] { return cpu_device(); });

}  // namespace sluice
