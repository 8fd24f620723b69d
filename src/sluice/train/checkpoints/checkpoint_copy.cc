#include "sluice/train/checkpoints/checkpoint_copy.h"

#include <fmt/format.h>

#include <algorithm>

#include "sluice/base/checked.h"
#include "sluice/base/system/cgroup.h"
#include "sluice/exe/budget/does_not_fit.h"
#include "sluice/exe/memory_needs.h"

namespace sluice::train {
namespace {

// DoesNotFit if the copy of the variables has more bytes than a memory has left.
void check_copy(int64_t bytes, int64_t used, int64_t budget, const char* what) {
  if (budget < 0 || bytes <= budget - used) return;
  exe::MemoryNeeds needs{.name = "host memory"};
  needs.total_bytes = checked_add(bytes, used);
  needs.budget_bytes = budget;
  throw DoesNotFit(
      fmt::format("checkpoints: the copy of the variables must have at most {} bytes, which {}, "
                  "got {}; use SaveCopy::kNone (--save-copy none)",
                  std::max<int64_t>(budget - used, 0), what, bytes),
      needs);
}

}  // namespace

VariableSpecs variables_of(const exe::Executable& executable) {
  VariableSpecs variables;
  for (const exe::VariablePlan& v : executable.variables) variables.emplace_back(v.path, v.spec);
  std::sort(variables.begin(), variables.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  return variables;
}

int64_t copy_bytes(const VariableSpecs& variables, int process, int processes) {
  int64_t bytes = 0;
  for (const CheckpointPart& part : checkpoint_parts(variables, processes)) {
    if (part.process == process) bytes += part.bytes;
  }
  return bytes;
}

void check_copy_budget(const exe::Executable& executable, int64_t bytes) {
  for (const exe::MemoryNeeds& tier : exe::memory_needs(executable, 0)) {
    if (tier.name == "tier host")
      check_copy(bytes, tier.total_bytes, tier.budget_bytes, "the budget of remote memory leaves");
  }
}

std::vector<std::byte> make_copy(const exe::Executable& executable, int64_t bytes) {
  check_copy_budget(executable, bytes);
  check_copy(bytes, 0, sys::available_memory().bytes, "are available");
  return std::vector<std::byte>(static_cast<size_t>(bytes));
}

}  // namespace sluice::train
