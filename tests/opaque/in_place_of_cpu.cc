#include <cstdlib>
#include <string_view>

#include "device.h"
#include "sluice/base/error.h"
#include "sluice/devices/cpu_device.h"
#include "target.h"

// A program that links this file runs on opaque devices where its source asks for the CPU.
// SLUICE_OPAQUE=threads gives each queue a thread. SLUICE_OPAQUE_SEED sets the seed.

namespace sluice {

DeviceChoice cpu_device(const CpuOptions& options) {
  require(options.threads >= 0, "cpu: threads must be at least 0, got {}", options.threads);
  require(options.memory >= -1, "cpu: memory must be at least -1, got {}", options.memory);
  opaque::Options behaviour;
  const char* const mode = std::getenv("SLUICE_OPAQUE");
  if (mode != nullptr && std::string_view(mode) == "threads")
    behaviour.mode = opaque::Mode::kThreads;
  if (const char* const seed = std::getenv("SLUICE_OPAQUE_SEED"))
    behaviour.seed = std::strtoull(seed, nullptr, 10);
  return {opaque::make_target(), opaque::make_device(behaviour), options.memory, options.threads};
}

}  // namespace sluice
