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
  FunctionId callee;  ///< Function that the step calls; of a branch, the one that needs more.
};

class NeedsOfMemories {
 public:
  NeedsOfMemories(const Executable& e, int max)
      : e_(e), max_(static_cast<size_t>(std::max(max, 0))), peaks_(e.functions.size()) {
    if (max > 0) contents_.emplace(e);
    for (const FunctionId f : callees_first(e)) peaks_[f] = peak(f);
  }

  std::vector<MemoryNeeds> all() const {
    std::vector<MemoryNeeds> out;
    for (const DeviceId d : e_.devices.ids()) out.push_back(device(d));
    for (const Tier& t : e_.tiers) out.push_back(tier(t));
    return out;
  }

 private:
  const Function& function(FunctionId f) const { return e_.functions[f]; }

  Peak peak(FunctionId f) const {
    const Function& fn = function(f);
    std::map<int64_t, int64_t> changes{{0, 0}};
    for (const FrameBuffer& b : fn.buffers) {
      if (holds_frame(fn, b)) continue;
      changes[b.begin] += b.bytes;
      changes[b.end] -= b.bytes;
    }
    // For each step with a call: maximum bytes of a callee, and that callee.
    std::map<int64_t, std::pair<int64_t, FunctionId>> called;
    for (size_t s = 0; s < fn.steps.size(); ++s) {
      for_each_call(fn.steps[s], [&](const Call& c) {
        auto& best = called.try_emplace(static_cast<int64_t>(s), -1, FunctionId()).first->second;
        best = std::max(best, {peaks_[c.function].bytes, c.function});
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
        best = {step, bytes, call == called.end() ? FunctionId() : call->second.second};
    }
    return best;
  }

  void add_arenas(MemoryNeeds& m, DeviceId device, Space space) const {
    for (const Arena& a : e_.arenas) {
      if (a.space != space || (device.valid() && a.device != device)) continue;
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
        m.peak_objects.push_back({a.name, std::string(word(a.kind)), "", a.bytes, FunctionId(), -1,
                                  MemoryContents::of_arena(a.kind)});
      }
    }
  }

  /// Adds the variables, constants and remote buffers in the arenas of this device and space.
  void add_persistent(MemoryNeeds& m, DeviceId device, Space space) const {
    const auto here = [&](ArenaId arena) {
      const Arena& a = e_.arenas[arena];
      return a.space == space && (!device.valid() || a.device == device);
    };
    const auto add = [&](const std::string& name, const char* kind, int64_t bytes, int32_t index) {
      m.bound_bytes += bytes;
      m.peak_objects.push_back({name, kind, "", bytes, FunctionId(), index});
    };
    for (const VariableId i : e_.variables.ids()) {
      const VariablePlan& v = e_.variables[i];
      if (v.buffer < 0 && here(v.arena)) add(v.path, "variable", v.bytes, i);
    }
    for (const ConstantId i : e_.constants.ids()) {
      const ConstantPlan& c = e_.constants[i];
      if (here(c.arena)) add(c.name, "constant", static_cast<int64_t>(c.data.size()), i);
    }
    for (const BufferId i : e_.remote_buffers.ids()) {
      const RemoteBufferPlan& b = e_.remote_buffers[i];
      if (here(b.arena)) add(b.name, "remote", b.entries * b.entry_stride, i);
    }
  }

  void add_buffers(MemoryNeeds& m, FunctionId f) const {
    std::string where;
    while (f.valid()) {
      const Function& fn = function(f);
      const Peak& p = peaks_[f];
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
    if (h.kind == "variable") h.contents = contents_->of_variable(VariableId(h.index));
    if (h.kind == "constant") h.contents = contents_->of_constant(ConstantId(h.index));
    if (h.kind == "remote") h.contents = contents_->of_remote(BufferId(h.index));
    if (h.kind != "buffer") return;
    const auto buffer = static_cast<size_t>(h.index);
    h.contents = contents_->of_buffer(h.function, buffer);
    h.provenance = std::make_shared<const Provenance>(contents_->provenance_of(h.function, buffer));
  }

  MemoryNeeds device(DeviceId d) const {
    MemoryNeeds m;
    m.name = fmt::format("device {} ({}{})", d, e_.devices[d].kind,
                         e_.replicas == 1 ? "" : fmt::format(", each of {} replicas", e_.replicas));
    m.device = d;
    m.budget_bytes = e_.devices[d].memory_budget;
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
    add_arenas(m, DeviceId(), t.space);
    add_persistent(m, DeviceId(), t.space);
    if (t.space == Space::kHost) {
      add_arenas(m, DeviceId(), Space::kPinned);
      add_persistent(m, DeviceId(), Space::kPinned);
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
  Ids<FunctionId, Peak> peaks_;
};

}  // namespace

bool holds_frame(const Function& function, const FrameBuffer& buffer) {
  const auto steps = static_cast<int64_t>(function.steps.size());
  if (buffer.begin < 0 || buffer.begin >= steps || buffer.end != buffer.begin + 1) return false;
  bool frame = false;
  for_each_call(at(function.steps, buffer.begin), [&](const Call& c) {
    frame |= c.frame.base == Address::Base::kFrame && c.frame.offset == buffer.offset;
  });
  return frame;
}

std::vector<MemoryNeeds> memory_needs(const Executable& executable, int max_objects) {
  return NeedsOfMemories(executable, max_objects).all();
}

}  // namespace sluice::exe
