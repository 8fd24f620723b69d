#pragma once
#include <functional>
#include <memory>

#include "sluice/runtime/process_group.h"

namespace sluice::test {

/// Calls `process` on as many threads as there should be processes, each with its place in a group of them: what processes
/// do to each other, where a debugger and a sanitizer see all of it. What the first of them threw is rethrown.
void for_each_process(int processes,
                      const std::function<void(std::shared_ptr<runtime::ProcessGroup>)>& process);

}  // namespace sluice::test
