#pragma once
#include <memory>

#include "sluice/runtime/device.h"
#include "sluice/target/target.h"

namespace sluice::cpu {

/// Creates the compile-time description of a CPU with the instruction set in use (isa.h).
std::shared_ptr<const Target> make_target();

/// Creates a CPU device of this process. Its arenas are in RAM. It runs kernel_list().
std::shared_ptr<runtime::Device> make_device();

}  // namespace sluice::cpu
