#include <atomic>
#include <cstdlib>

#include "choice.h"
#include "sluice/base/error.h"
#include "sluice/cpu/device/cpu.h"
#include "sluice/devices/cpu_device.h"

// A program that links this file runs on opaque devices where its source asks for the CPU. With
// SLUICE_OPAQUE_MIXED, each second device is a CPU.

namespace sluice {

DeviceChoice cpu_device(const CpuOptions& options) {
  require(options.threads >= 0, "cpu device: threads must be at least 0, got {}", options.threads);
  require(options.memory >= -1, "cpu device: memory must be at least -1, got {}", options.memory);
  static std::atomic<int> calls{0};
  const bool is_cpu = std::getenv("SLUICE_OPAQUE_MIXED") != nullptr && calls++ % 2 == 1;
  DeviceChoice choice =
      is_cpu ? DeviceChoice{cpu::make_target(), cpu::make_device()} : opaque::choice();
  choice.memory = options.memory;
  choice.threads = options.threads;
  return choice;
}

DeviceChoice default_device() { return cpu_device(); }

}  // namespace sluice
