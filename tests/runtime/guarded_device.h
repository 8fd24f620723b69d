#pragma once
#include <cstdint>
#include <memory>

#include "sluice/runtime/device.h"

namespace sluice::test {

/// Returns a CPU device that runs each task of a kernel on copies of its operands. Each copy is
/// alone between pages without access; copies of read operands are read-only. Outputs hold garbage
/// (0xff) before the first task, and only outputs are copied back. The workspace is guarded in the
/// same way. A kernel that deviates from its plan crashes or computes other values. For one thread.
/// `tasks` counts the tasks.
std::shared_ptr<runtime::Device> guarded_device(std::shared_ptr<int64_t> tasks);

}  // namespace sluice::test
