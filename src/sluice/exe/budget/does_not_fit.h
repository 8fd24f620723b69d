#pragma once
#include <optional>
#include <string>
#include <vector>

#include "sluice/base/error.h"
#include "sluice/exe/memory_needs.h"

namespace sluice {

/// Error{kDoesNotFit} with its figures as fields: a plan needs more bytes than a budget, or than
/// the machine has. `catch (const Error&)` catches it too.
class DoesNotFit : public Error {
 public:
  DoesNotFit(std::string message, exe::MemoryNeeds memory, std::string remedy = {});

  /// Returns the first memory that is too small: the bytes needed (`total_bytes`), the budget or
  /// the bytes that the machine has (`budget_bytes`), smallest_budget(), the live-set bound
  /// (`bound_bytes`) and the largest objects at the peak, which PeakObject::contents names. Memory
  /// of the machine has neither a bound nor objects.
  const exe::MemoryNeeds& memory() const { return memory_; }
  /// Returns the name of a program that fits, "phased, with weights in remote memory"; empty if
  /// none is known.
  const std::string& remedy() const { return remedy_; }
  /// Returns this error with a remedy, and with "\n  <remedy> fits" at the end of its text.
  DoesNotFit with_remedy(std::string remedy) const;

 private:
  exe::MemoryNeeds memory_;
  std::string remedy_;
};

namespace exe {

/// Judges the budgets of a plan, whose needs are `memories` (memory_needs()). Returns the error of
/// the first memory that exceeds its budget, or of the first arena above kMaxSize bytes; nothing if
/// the plan fits. The text has the bytes needed, the budget, the smallest budget with a plan, the
/// live-set bound and the objects at the peak.
std::optional<DoesNotFit> find_excess(const Executable& executable,
                                      const std::vector<MemoryNeeds>& memories);

}  // namespace exe
}  // namespace sluice
