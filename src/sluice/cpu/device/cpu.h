#pragma once
#include <memory>

#include "sluice/runtime/device.h"
#include "sluice/target/target.h"

namespace sluice::cpu {

/// What CPUs answer at compile time, for the instruction set in use (isa.h).
std::shared_ptr<const Target> make_target();

/// A CPU device of this process: arenas in RAM, kernels of kernel_list().
std::shared_ptr<runtime::Device> make_device();

}  // namespace sluice::cpu
