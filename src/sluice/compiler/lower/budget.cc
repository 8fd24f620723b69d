#include "sluice/compiler/lower/budget.h"

#include "sluice/exe/memory_needs.h"
#include "sluice/exe/validate.h"

namespace sluice::compiler {

void check_budgets(const exe::Executable& executable) {
  for (const exe::Arena& a : executable.arenas) {
    if (a.bytes > exe::kMaxSize) {
      fail(ErrorKind::kDoesNotFit, "arena '{}' needs {} bytes, the largest possible arena has {}",
           a.name, a.bytes, exe::kMaxSize);
    }
  }
  for (const exe::MemoryNeeds& memory : exe::memory_needs(executable, 6)) {
    if (memory.budget_bytes < 0 || memory.total_bytes <= memory.budget_bytes) continue;
    std::string holders;
    for (const exe::Holder& h : memory.holders) {
      holders += fmt::format("\n    {:>12} B  {} {}{}", h.bytes, h.kind, h.name,
                             h.where.empty() ? "" : " (" + h.where + ")");
    }
    fail(ErrorKind::kDoesNotFit,
         "{} needs {} bytes, its budget is {} ({} short)\n  smallest budget found: {} bytes; "
         "live-set bound: {} bytes\n"
         "  held at the peak:{}",
         memory.name, memory.total_bytes, memory.budget_bytes,
         memory.total_bytes - memory.budget_bytes, memory.smallest_budget(), memory.bound_bytes,
         holders);
  }
}

}  // namespace sluice::compiler
