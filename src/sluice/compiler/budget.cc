#include "sluice/compiler/budget.h"

#include <algorithm>

#include "sluice/base/checked.h"

namespace sluice::compiler {
namespace {

struct Holder {
  std::string name;
  int64_t bytes;
};

std::string describe(std::vector<Holder> holders) {
  std::stable_sort(holders.begin(), holders.end(), [](const Holder& a, const Holder& b) { return a.bytes > b.bytes; });
  std::string text;
  for (size_t i = 0; i < std::min<size_t>(holders.size(), 6); ++i) {
    text += fmt::format("\n    {:>12} B  {}", holders[i].bytes, holders[i].name);
  }
  return text;
}

std::vector<Holder> holders_of(const exe::Executable& exe, int32_t device) {
  std::vector<Holder> holders;
  for (const exe::VariablePlan& v : exe.variables) {
    if (exe.arenas[static_cast<size_t>(v.arena)].device == device) holders.push_back({"variable " + v.path, v.bytes});
  }
  for (const exe::Arena& a : exe.arenas) {
    const bool other = a.kind == exe::ArenaKind::kWorkspace || a.kind == exe::ArenaKind::kSlots;
    if (other && a.device == device && a.bytes > 0) holders.push_back({a.name, a.bytes});
  }
  // The fullest step of the largest entry's frame.
  const exe::Function* largest = nullptr;
  for (const exe::Program& p : exe.programs) {
    for (const exe::Entry& e : p.entries) {
      const exe::Function& f = exe.functions[static_cast<size_t>(e.function)];
      if (e.device == device && (largest == nullptr || f.frame_bytes > largest->frame_bytes)) largest = &f;
    }
  }
  if (largest == nullptr) return holders;
  int64_t best_step = 0;
  int64_t best = -1;
  for (const exe::FrameBuffer& start : largest->buffers) {
    int64_t live = 0;
    for (const exe::FrameBuffer& b : largest->buffers) {
      if (b.begin <= start.begin && start.begin < b.end) live += b.bytes;
    }
    if (live > best) {
      best = live;
      best_step = start.begin;
    }
  }
  for (const exe::FrameBuffer& b : largest->buffers) {
    if (b.begin <= best_step && best_step < b.end) holders.push_back({largest->name + ": " + b.name, b.bytes});
  }
  return holders;
}

}  // namespace

void check_budgets(const exe::Executable& exe, const CompileOptions& options) {
  for (size_t d = 0; d < options.devices.size(); ++d) {
    const int64_t budget = options.devices[d].memory;
    const auto device = static_cast<int32_t>(d);
    const int64_t needed = exe::planned_bytes(exe, device, exe::Space::kDevice);
    if (budget < 0 || needed <= budget) continue;
    int64_t bound = 0;
    for (const exe::Arena& a : exe.arenas) {
      if (a.device == device && a.space == exe::Space::kDevice && a.kind != exe::ArenaKind::kFrames) bound += a.bytes;
    }
    int64_t frame_bound = 0;
    for (const exe::Program& p : exe.programs) {
      for (const exe::Entry& e : p.entries) {
        if (e.device == device) {
          frame_bound = std::max(frame_bound, exe.functions[static_cast<size_t>(e.function)].frame_bound);
        }
      }
    }
    fail(ErrorKind::kDoesNotFit,
         "device {} needs {} bytes, its budget is {} ({} short)\n  smallest budget found: {} bytes; live-set bound: {} "
         "bytes\n  held at the peak:{}",
         device, needed, budget, needed - budget, needed, bound + frame_bound, describe(holders_of(exe, device)));
  }
  if (options.host_memory < 0) return;
  const int64_t host = exe::planned_bytes(exe, -1, exe::Space::kHost);
  if (host > options.host_memory) {
    fail(ErrorKind::kDoesNotFit, "the host tier needs {} bytes, its budget is {}", host, options.host_memory);
  }
}

}  // namespace sluice::compiler
