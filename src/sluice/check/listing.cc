#include "sluice/check/listing.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include "sluice/exe/text.h"
#include "sluice/exe/visit_step.h"

namespace sluice::check {
namespace {

/// Finds the listed buffers that are live in a step. Steps are visited in ascending order.
class LiveBuffers {
 public:
  LiveBuffers() = default;
  explicit LiveBuffers(const std::vector<exe::FrameBuffer>& buffers) {
    for (const exe::FrameBuffer& b : buffers) coming_.push_back(&b);
    std::stable_sort(coming_.begin(), coming_.end(),
                     [](const auto* a, const auto* b) { return a->begin > b->begin; });
  }

  void go_to(int64_t step) {
    for (; !coming_.empty() && coming_.back()->begin <= step; coming_.pop_back()) {
      const exe::FrameBuffer* const b = coming_.back();
      ends_.emplace(b->end, live_.emplace(b->offset, b));
    }
    for (; !ends_.empty() && ends_.begin()->first <= step; ends_.erase(ends_.begin()))
      live_.erase(ends_.begin()->second);
  }

  /// Returns whether one live buffer contains all of [begin, end).
  bool holds(int64_t begin, int64_t end) const {
    // Begin with the nearest buffer at or below `begin`: it nearly always contains the range.
    for (auto b = live_.upper_bound(begin); b != live_.begin();) {
      --b;
      if (end <= b->first + b->second->bytes) return true;
    }
    return false;
  }

 private:
  using ByOffset = std::multimap<int64_t, const exe::FrameBuffer*>;

  /// Buffers that begin later; the next one is last.
  std::vector<const exe::FrameBuffer*> coming_;
  ByOffset live_;
  std::multimap<int64_t, ByOffset::iterator> ends_;  ///< The live buffers by their last step.
};

/// Returns a description of the first fault in the list of a function's buffers, if any.
std::optional<std::string> fault_of(const exe::Executable& e, const exe::Function& f) {
  const auto steps = static_cast<int64_t>(f.steps.size());
  for (const exe::FrameBuffer& b : f.buffers) {
    const bool inside = b.offset + b.bytes <= f.frame_bytes;
    if (inside && 0 <= b.begin && b.begin <= b.end && b.end <= steps) continue;
    return fmt::format(
        "buffer '{}': must be inside {} bytes and {} steps, got bytes [{}, {}) and steps [{}, {})",
        b.name, f.frame_bytes, steps, b.offset, b.offset + b.bytes, b.begin, b.end);
  }
  if (f.frame_bound > f.frame_bytes)
    return fmt::format("live-set bound: must be at most the frame's {} bytes, got {}",
                       f.frame_bytes, f.frame_bound);
  if (f.buffers.empty()) return {};
  LiveBuffers live(f.buffers);
  std::optional<std::string> fault;
  for (size_t s = 0; s < f.steps.size() && !fault; ++s) {
    live.go_to(static_cast<int64_t>(s));
    const auto look = [&](const exe::Address& at, int64_t bytes) {
      if (at.base != exe::Address::Base::kFrame || bytes == 0) return;
      const int64_t end = at.offset + std::max<int64_t>(at.depth - 1, 0) * at.stride + bytes;
      if (live.holds(at.offset, end)) return;
      fault = fmt::format("step {} ({}) uses bytes [{}, {}) outside the buffers listed for it", s,
                          exe::step_title(f.steps[s]), at.offset, end);
    };
    exe::for_each_operand(f.steps[s], [&](const exe::Operand& o) { look(o.at, o.bytes); });
    exe::for_each_call(f.steps[s], [&](const exe::Call& c) {
      look(c.frame, e.functions[c.function].frame_bytes);
      for (const exe::Operand& o : c.args) look(o.at, o.bytes);
    });
  }
  return fault;
}

}  // namespace

void check_listings(const exe::Executable& executable, Findings& findings) {
  for (const exe::Function& f : executable.functions) {
    if (const auto fault = fault_of(executable, f))
      findings.add("listing", "function '{}': {}", f.name, *fault);
  }
}

}  // namespace sluice::check
