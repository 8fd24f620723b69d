#pragma once
#include <functional>
#include <memory>

#include "sluice/runtime/device.h"

namespace sluice::test {

/// What a guarded device did and may be told to do.
struct GuardedRuns {
  int64_t tasks = 0;  ///< Run in guarded memory.
  std::function<void(const exe::Kernel&, int64_t task)>
      before;  ///< Called before each task; may throw.
};

/// The CPU, except that each task of a kernel runs on copies of its operands, each alone between pages that may not be
/// touched, read-only if the plan says that it is read; outputs hold garbage (0xff) before, and only outputs come back.
/// The workspace is guarded in the same way. Only what a plan says happens, or the program crashes or gives other
/// values. For one thread.
std::shared_ptr<runtime::Device> guarded_device(std::shared_ptr<GuardedRuns> runs);

}  // namespace sluice::test
