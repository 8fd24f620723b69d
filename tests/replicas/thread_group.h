#pragma once
#include <functional>
#include <memory>

#include "sluice/runtime/process_group.h"

namespace sluice::test {

/// Calls `process` on `processes` threads, each as one process of a group. A debugger and a
/// sanitizer then see all messages between these processes. Rethrows the error that was thrown
/// first.
void for_each_process(int processes,
                      const std::function<void(std::shared_ptr<runtime::ProcessGroup>)>& process);

}  // namespace sluice::test
