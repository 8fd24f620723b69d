#include "sluice/devices/cpu_device.h"

#include "sluice/base/error.h"
#include "sluice/cpu/device/cpu.h"

namespace sluice {

DeviceChoice cpu_device(const CpuOptions& options) {
  require(options.memory >= -1,
          "cpu device: memory must be at least 0 bytes, or -1 for no budget, got {}",
          options.memory);
  require(options.threads >= 0, "cpu device: threads must be at least 0, got {}", options.threads);
  return {cpu::make_target(), cpu::make_device(), options.memory, options.threads};
}

DeviceChoice default_device() { return cpu_device(); }

}  // namespace sluice
