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

}  // namespace sluice
