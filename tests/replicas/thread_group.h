#pragma once
#include <cstdint>
#include <functional>
#include <memory>

#include "sluice/runtime/process_group.h"

namespace sluice::test {

/// Calls `process` on `processes` threads, each as one process of a group. A debugger and a
/// sanitizer then see all messages between these processes. Rethrows the error that was thrown
/// first.
void for_each_process(int processes,
                      const std::function<void(std::shared_ptr<runtime::ProcessGroup>)>& process);

/// Returns the bytes that the processes of all groups have sent since the start for
/// collectives and channels, without messages of runtime::Agreement.
int64_t bytes_sent_by_programs();

}  // namespace sluice::test
