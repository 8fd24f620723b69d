#include "choice.h"
#include "sluice/base/error.h"
#include "sluice/devices/cpu_device.h"

// A program that links this file runs on opaque devices where its source asks for the CPU.

namespace sluice {

DeviceChoice cpu_device(const CpuOptions& options) {
  require(options.threads >= 0, "cpu device: threads must be at least 0, got {}", options.threads);
  require(options.memory >= -1, "cpu device: memory must be at least -1, got {}", options.memory);
  DeviceChoice choice = opaque::choice();
  choice.memory = options.memory;
  choice.threads = options.threads;
  return choice;
}

}  // namespace sluice
