#include "sluice/exe/budget/does_not_fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "sluice/exe/executable.h"
#include "sluice/exe/validate.h"

namespace sluice {

DoesNotFit::DoesNotFit(std::string message, exe::MemoryNeeds memory, std::string remedy)
    : Error(ErrorKind::kDoesNotFit, std::move(message)),
      memory_(std::move(memory)),
      remedy_(std::move(remedy)) {}

DoesNotFit DoesNotFit::with_remedy(std::string remedy) const {
  return {fmt::format("{}\n  {} fits", what(), remedy), memory_, std::move(remedy)};
}

namespace exe {
namespace {

constexpr size_t kMaxObjectsInText = 6;

std::string text_of(const MemoryNeeds& memory) {
  std::string peak_objects;
  for (size_t i = 0; i < std::min(memory.peak_objects.size(), kMaxObjectsInText); ++i) {
    const PeakObject& h = memory.peak_objects[i];
    peak_objects += fmt::format("\n    {:>12} B  {}", h.bytes, h.contents.name);
  }
  return fmt::format(
      "{} needs {} bytes, its budget is {} ({} short)\n  smallest budget found: {} bytes; "
      "live-set bound: {} bytes\n"
      "  held at the peak:{}",
      memory.name, memory.total_bytes, memory.budget_bytes,
      memory.total_bytes - memory.budget_bytes, memory.smallest_budget(), memory.bound_bytes,
      peak_objects);
}

}  // namespace

std::optional<DoesNotFit> find_excess(const Executable& executable,
                                      const std::vector<MemoryNeeds>& memories) {
  for (const Arena& a : executable.arenas) {
    if (a.bytes <= kMaxSize) continue;
    MemoryNeeds memory{.name = a.name, .device = a.device};
    memory.total_bytes = a.bytes;
    memory.budget_bytes = kMaxSize;
    return DoesNotFit(fmt::format("arena '{}' needs {} bytes, the largest possible arena has {}",
                                  a.name, a.bytes, kMaxSize),
                      std::move(memory));
  }
  for (const MemoryNeeds& memory : memories) {
    if (!memory.fits()) return DoesNotFit(text_of(memory), memory);
  }
  return std::nullopt;
}

}  // namespace exe
}  // namespace sluice
