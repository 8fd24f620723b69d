#include "sluice/exe/memory_needs.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "sluice/exe/budget/memory_contents.h"
#include "sluice/exe/call_order.h"
#include "sluice/exe/executable.h"
#include "sluice/exe/visit_step.h"
#include "sluice/exe/words.h"

namespace sluice::exe {
namespace {

/// The step at which the live bytes of a function's frame, callees included, are at their maximum.
struct Peak {
  int64_t step = -1;
  int64_t bytes = 0;
  int32_t callee = -1;  ///< Function that the step calls; of a branch, the one that needs more.
};

class NeedsOfMemories {
 public:
  NeedsOfMemories(const Executable& e, int max)
      : e_(e), max_(static_cast<size_t>(std::max(max, 0))), peaks_(e.functions.size()) {
    if (max > 0) contents_.emplace(e);
    for (const int32_t f : callees_first(e)) peaks_[static_cast<size_t>(f)] = peak(f);
  }

  std::vector<MemoryNeeds> all() const {
    std::vector<MemoryNeeds> out;
    for (size_t d = 0; d < e_.devices.size(); ++d) out.push_back(device(static_cast<int32_t>(d)));
    for (const Tier& t : e_.tiers) out.push_back(tier(t));
    return out;
  }

 private:
  const Function& function(int32_t f) const { return e_.functions[static_cast<size_t>(f)]; }

  Peak peak(int32_t f) const {
    const Function& fn = function(f);
    std::map<int64_t, int64_t> changes{{0, 0}};
    for (const FrameBuffer& b : fn.buffers) {
      if (holds_frame(fn, b)) continue;
      changes[b.begin] += b.bytes;
      changes[b.end] -= b.bytes;
    }
    // For each step with a call: maximum bytes of a callee, and that callee.
    std::map<int64_t, std::pair<int64_t, int32_t>> called;
    for (size_t s = 0; s < fn.steps.size(); ++s) {
      for_each_call(fn.steps[s], [&](const Call& c) {
        auto& best = called.try_emplace(static_cast<int64_t>(s), -1, -1).first->second;
        best = std::max(best, {peaks_[static_cast<size_t>(c.function)].bytes, c.function});
        changes.try_emplace(static_cast<int64_t>(s), 0);
      });
    }
    Peak best;
    int64_t live = 0;
    for (const auto& [step, change] : changes) {
      live += change;
      const auto call = called.find(step);
      const int64_t bytes = live + (call == called.end() ? 0 : call->second.first);
      if (best.step < 0 || bytes > best.bytes)
        best = {step, bytes, call == called.end() ? -1 : call->second.second};
    }
    return best;
  }

  void add_arenas(MemoryNeeds& m, int32_t device, Space space) const {
    for (const Arena& a : e_.arenas) {
      if (a.space != space || (device >= 0 && a.device != device)) continue;
      m.total_bytes += a.bytes;
      switch (a.kind) {
        case ArenaKind::kPersistent:
          m.persistent_bytes += a.bytes;
          break;
        case ArenaKind::kFrames:
          m.frame_bytes += a.bytes;
          break;
        case ArenaKind::kWorkspace:
          m.workspace_bytes += a.bytes;
          break;
        case ArenaKind::kSlots:
          m.slot_bytes += a.bytes;
          break;
        case ArenaKind::kTier:
          m.tier_bytes += a.bytes;
          break;
        case ArenaKind::kStaging:
          m.staging_bytes += a.bytes;
          break;
        case ArenaKind::kChecksums:
          m.checksum_bytes += a.bytes;
          break;
        case ArenaKind::kRings:
          m.ring_bytes += a.bytes;
          break;
      }
      const bool held_as_such = a.kind == ArenaKind::kWorkspace || a.kind == ArenaKind::kSlots ||
                                a.kind == ArenaKind::kStaging || a.kind == ArenaKind::kChecksums ||
                                a.kind == ArenaKind::kRings;
      if (a.bytes > 0 && held_as_such) {
        m.bound_bytes += a.bytes;
        m.peak_objects.push_back({a.name, std::string(word(a.kind)), "", a.bytes, -1, -1,
                                  MemoryContents::of_arena(a.kind)});
      }
    }
  }

  /// Adds the variables, constants and remote buffers in the arenas of this device and space.
  void add_persistent(MemoryNeeds& m, int32_t device, Space space) const {
    const auto here = [&](int32_t arena) {
      const Arena& a = e_.arenas[static_cast<size_t>(arena)];
      return a.space == space && (device < 0 || a.device == device);
    };
    const auto add = [&](const std::string& name, const char* kind, int64_t bytes, size_t index) {
      m.bound_bytes += bytes;
      m.peak_objects.push_back({name, kind, "", bytes, -1, static_cast<int32_t>(index)});
    };
    for (size_t i = 0; i < e_.variables.size(); ++i) {
      const VariablePlan& v = e_.variables[i];
      if (v.buffer < 0 && here(v.arena)) add(v.path, "variable", v.bytes, i);
    }
    for (size_t i = 0; i < e_.constants.size(); ++i) {
      const ConstantPlan& c = e_.constants[i];
      if (here(c.arena)) add(c.name, "constant", static_cast<int64_t>(c.data.size()), i);
    }
    for (size_t i = 0; i < e_.remote_buffers.size(); ++i) {
      const RemoteBufferPlan& b = e_.remote_buffers[i];
      if (here(b.arena)) add(b.name, "remote", b.entries * b.entry_stride, i);
    }
  }

  void add_buffers(MemoryNeeds& m, int32_t f) const {
    std::string where;
    while (f >= 0) {
      const Function& fn = function(f);
      const Peak& p = peaks_[static_cast<size_t>(f)];
      where += fmt::format("{}{} step {}", where.empty() ? "" : " > ", fn.name, p.step);
      for (size_t i = 0; i < fn.buffers.size(); ++i) {
        const FrameBuffer& b = fn.buffers[i];
        if (p.step < b.begin || p.step >= b.end || holds_frame(fn, b)) continue;
        m.peak_objects.push_back({b.name, "buffer", where, b.bytes, f, static_cast<int32_t>(i)});
      }
      f = p.callee;
    }
  }

  void close(MemoryNeeds& m) const {
    m.ratio = m.bound_bytes > 0
                  ? static_cast<double>(m.total_bytes) / static_cast<double>(m.bound_bytes)
                  : 1;
    std::stable_sort(m.peak_objects.begin(), m.peak_objects.end(),
                     [](const PeakObject& a, const PeakObject& b) { return a.bytes > b.bytes; });
    if (m.peak_objects.size() > max_) m.peak_objects.resize(max_);
    for (PeakObject& h : m.peak_objects) name(h);
  }

  void name(PeakObject& h) const {
    if (h.kind == "variable") h.contents = contents_->of_variable(h.index);
    if (h.kind == "constant") h.contents = contents_->of_constant(h.index);
    if (h.kind == "remote") h.contents = contents_->of_remote(h.index);
    if (h.kind != "buffer") return;
    h.contents = contents_->of_buffer(h.function, h.index);
    h.provenance =
        std::make_shared<const Provenance>(contents_->provenance_of(h.function, h.index));
  }

  MemoryNeeds device(int32_t d) const {
    MemoryNeeds m;
    m.name = fmt::format("device {} ({}{})", d, e_.devices[static_cast<size_t>(d)].kind,
                         e_.replicas == 1 ? "" : fmt::format(", each of {} replicas", e_.replicas));
    m.device = d;
    m.budget_bytes = e_.devices[static_cast<size_t>(d)].memory_budget;
    add_arenas(m, d, Space::kDevice);
    add_persistent(m, d, Space::kDevice);
    const Start* largest = nullptr;
    int64_t bound = 0;
    for (const Program& p : e_.programs) {
      for (const Start& x : p.starts) {
        if (x.device != d) continue;
        const Function& f = function(x.function);
        bound = std::max(bound, f.frame_bound);
        if (largest == nullptr || f.frame_bytes > function(largest->function).frame_bytes) {
          largest = &x;
          m.peak_program = p.name;
        }
      }
    }
    m.bound_bytes += bound;
    if (largest != nullptr) add_buffers(m, largest->function);
    close(m);
    return m;
  }

  // A tier belongs to the machine, so it holds the entries of all replicas.
  MemoryNeeds tier(const Tier& t) const {
    MemoryNeeds m;
    m.name = "tier " + t.name;
    m.budget_bytes = t.budget;
    add_arenas(m, -1, t.space);
    add_persistent(m, -1, t.space);
    if (t.space == Space::kHost) {
      add_arenas(m, -1, Space::kPinned);
      add_persistent(m, -1, Space::kPinned);
    }
    for (int64_t* bytes :
         {&m.persistent_bytes, &m.frame_bytes, &m.workspace_bytes, &m.slot_bytes, &m.tier_bytes,
          &m.staging_bytes, &m.checksum_bytes, &m.ring_bytes, &m.total_bytes, &m.bound_bytes})
      *bytes *= e_.replicas;
    for (PeakObject& h : m.peak_objects) h.bytes *= e_.replicas;
    close(m);
    return m;
  }

  const Executable& e_;
  const size_t max_;
  std::optional<MemoryContents> contents_;  // Nothing if no object is listed.
  std::vector<Peak> peaks_;
};

}  // namespace

bool holds_frame(const Function& function, const FrameBuffer& buffer) {
  const auto steps = static_cast<int64_t>(function.steps.size());
  if (buffer.begin < 0 || buffer.begin >= steps || buffer.end != buffer.begin + 1) return false;
  bool frame = false;
  for_each_call(function.steps[static_cast<size_t>(buffer.begin)], [&](const Call& c) {
    frame |= c.frame.base == Address::Base::kFrame && c.frame.offset == buffer.offset;
  });
  return frame;
}

std::vector<MemoryNeeds> memory_needs(const Executable& executable, int max_objects) {
  return NeedsOfMemories(executable, max_objects).all();
}

}  // namespace sluice::exe
