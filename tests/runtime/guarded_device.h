#pragma once
#include <cstdint>
#include <memory>

#include "sluice/runtime/device.h"

namespace sluice::test {

/// The CPU, except that each task of a kernel runs on copies of its operands, each alone between pages that may not be
/// touched, read-only if the plan says that it is read; outputs hold garbage (0xff) before, and only outputs come back.
/// The workspace is guarded in the same way. Only what a plan says happens, or the program crashes or gives other
/// values. For one thread.
/// `tasks` counts them.
std::shared_ptr<runtime::Device> guarded_device(std::shared_ptr<int64_t> tasks);

}  // namespace sluice::test
