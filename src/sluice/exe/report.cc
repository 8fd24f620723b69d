#include "sluice/exe/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>

#include "sluice/exe/call_order.h"
#include "sluice/exe/traffic.h"
#include "sluice/exe/visit_step.h"
#include "sluice/exe/words.h"

namespace sluice::exe {
namespace {

int64_t size_of_expression(const IndexExpr& x) {
  return static_cast<int64_t>(x.nodes().size() * sizeof(IndexExpr::Node));
}

int64_t size_of_operand(const Operand& o) {
  return static_cast<int64_t>(sizeof(Operand) + o.spec.shape.dims().size() * sizeof(int64_t)) +
         size_of_expression(o.at.slot);
}

int64_t size_of_step(const Step& step) {
  auto bytes = static_cast<int64_t>(sizeof(Step) + step.where.size());
  for_each_operand(step, [&](const Operand& o) { bytes += size_of_operand(o); });
  for_each_call(step, [&](const Call& c) {
    for (const Operand& o : c.args) bytes += size_of_operand(o);
    for (const IndexExpr& x : c.index_args)
      bytes += static_cast<int64_t>(sizeof(IndexExpr)) + size_of_expression(x);
  });
  if (const auto* k = std::get_if<Kernel>(&step.body)) {
    bytes += static_cast<int64_t>(k->attrs.items.size() * sizeof(k->attrs.items[0]));
    for (const IndexExpr& x : k->scalars)
      bytes += static_cast<int64_t>(sizeof(IndexExpr)) + size_of_expression(x);
  }
  return bytes;
}

/// When a function's frame is fullest, looking through calls.
struct Peak {
  int64_t step = -1;
  int64_t bytes = 0;
  int32_t callee = -1;  ///< The function that the step calls, the larger of two.
};

/// The buffer is the frame that a call of step `s` takes, not a tensor.
bool is_frame(const FrameBuffer& b, const Step& step, int64_t s) {
  if (b.begin != s || b.end != s + 1) return false;
  bool frame = false;
  for_each_call(step, [&](const Call& c) {
    frame |= c.frame.base == Address::Base::kFrame && c.frame.offset == b.offset;
  });
  return frame;
}

class Reporter {
 public:
  Reporter(const Executable& e, int most) : e_(e), most_(static_cast<size_t>(std::max(most, 0))) {}

  Report run() {
    Report out;
    peaks_.resize(e_.functions.size());
    for (const int32_t f : callees_first(e_)) peaks_[static_cast<size_t>(f)] = peak(f);
    for (size_t d = 0; d < e_.devices.size(); ++d)
      out.memories.push_back(device(static_cast<int32_t>(d)));
    for (const Tier& t : e_.tiers) out.memories.push_back(tier(t));
    functions(out);
    const TrafficCounter traffic(e_);
    for (const Program& p : e_.programs) transfers(p, traffic.of(p), out);
    return out;
  }

 private:
  const Function& function(int32_t f) const { return e_.functions[static_cast<size_t>(f)]; }

  Peak peak(int32_t f) const {
    const Function& fn = function(f);
    std::map<int64_t, int64_t> changes{{0, 0}};
    for (const FrameBuffer& b : fn.buffers) {
      const bool in_steps = b.begin >= 0 && b.begin < static_cast<int64_t>(fn.steps.size());
      if (in_steps && is_frame(b, fn.steps[static_cast<size_t>(b.begin)], b.begin)) continue;
      changes[b.begin] += b.bytes;
      changes[b.end] -= b.bytes;
    }
    std::map<int64_t, std::pair<int64_t, int32_t>> called;  // By step: bytes and function.
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

  void add_arenas(MemoryReport& m, int32_t device, Space space) const {
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
      }
      const bool held_as_such = a.kind == ArenaKind::kWorkspace || a.kind == ArenaKind::kSlots ||
                                a.kind == ArenaKind::kStaging || a.kind == ArenaKind::kChecksums;
      if (a.bytes > 0 && held_as_such) {
        m.bound_bytes += a.bytes;
        m.holders.push_back({a.name, std::string(word(a.kind)), "", a.bytes});
      }
    }
  }

  /// Variables, constants and remote buffers that lie in such arenas.
  void add_persistent(MemoryReport& m, int32_t device, Space space) const {
    const auto here = [&](int32_t arena) {
      const Arena& a = e_.arenas[static_cast<size_t>(arena)];
      return a.space == space && (device < 0 || a.device == device);
    };
    const auto add = [&](const std::string& name, const char* kind, int64_t bytes) {
      m.bound_bytes += bytes;
      m.holders.push_back({name, kind, "", bytes});
    };
    for (const VariablePlan& v : e_.variables) {
      if (v.buffer < 0 && here(v.arena)) add(v.path, "variable", v.bytes);
    }
    for (const ConstantPlan& c : e_.constants) {
      if (here(c.arena)) add(c.name, "constant", static_cast<int64_t>(c.data.size()));
    }
    for (const RemoteBufferPlan& b : e_.remote_buffers) {
      if (here(b.arena)) add(b.name, "remote", b.entries * b.entry_stride);
    }
  }

  void add_buffers(MemoryReport& m, int32_t f) const {
    std::string where;
    while (f >= 0) {
      const Function& fn = function(f);
      const Peak& p = peaks_[static_cast<size_t>(f)];
      where += fmt::format("{}{} step {}", where.empty() ? "" : " > ", fn.name, p.step);
      for (const FrameBuffer& b : fn.buffers) {
        if (p.step < b.begin || p.step >= b.end) continue;
        const bool in_steps = p.step < static_cast<int64_t>(fn.steps.size());
        if (in_steps && is_frame(b, fn.steps[static_cast<size_t>(p.step)], p.step)) continue;
        m.holders.push_back({b.name, "buffer", where, b.bytes});
      }
      f = p.callee;
    }
  }

  void close(MemoryReport& m) const {
    m.ratio = m.bound_bytes > 0
                  ? static_cast<double>(m.total_bytes) / static_cast<double>(m.bound_bytes)
                  : 1;
    std::stable_sort(m.holders.begin(), m.holders.end(),
                     [](const Holder& a, const Holder& b) { return a.bytes > b.bytes; });
    if (m.holders.size() > most_) m.holders.resize(most_);
  }

  MemoryReport device(int32_t d) const {
    MemoryReport m;
    m.name = fmt::format("device {} ({}{})", d, e_.devices[static_cast<size_t>(d)].kind,
                         e_.replicas == 1 ? "" : fmt::format(", each of {} replicas", e_.replicas));
    m.device = d;
    m.budget_bytes = e_.devices[static_cast<size_t>(d)].memory_budget;
    add_arenas(m, d, Space::kDevice);
    add_persistent(m, d, Space::kDevice);
    const Entry* largest = nullptr;
    int64_t bound = 0;
    for (const Program& p : e_.programs) {
      for (const Entry& x : p.entries) {
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

  // A tier is the machine's: it holds the entries of all replicas.
  MemoryReport tier(const Tier& t) const {
    MemoryReport m;
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
          &m.staging_bytes, &m.checksum_bytes, &m.total_bytes, &m.bound_bytes})
      *bytes *= e_.replicas;
    for (Holder& h : m.holders) h.bytes *= e_.replicas;
    close(m);
    return m;
  }

  std::string memory_of(const Traffic& t) const {
    if (t.kind == TransferKind::kStreamIn || t.kind == TransferKind::kStreamOut) return "streams";
    const RemoteBufferPlan& b = e_.remote_buffers[static_cast<size_t>(t.object)];
    const Space space = e_.arenas[static_cast<size_t>(b.arena)].space;
    for (const Tier& tier : e_.tiers) {
      if (tier.space == space) return "tier " + tier.name;
    }
    return std::string(word(space)) + " memory";
  }

  void transfers(const Program& program, const std::vector<Traffic>& traffic, Report& out) const {
    std::map<std::pair<std::string, std::string>, TransferReport> sums;
    for (const Traffic& t : traffic) {
      const Device& device = e_.devices[static_cast<size_t>(t.device)];
      const std::string memory = memory_of(t);
      const std::string& queue = device.queues[static_cast<size_t>(t.queue)].name;
      TransferReport& sum =
          sums.try_emplace({memory, queue}, TransferReport{program.name, memory, queue})
              .first->second;
      const bool load = t.kind == TransferKind::kStreamIn || t.kind == TransferKind::kRemoteLoad;
      int64_t& count = load ? sum.loads : sum.stores;
      int64_t& bytes = load ? sum.loaded_bytes : sum.stored_bytes;
      count = bounded_sum(count, t.transfers);
      bytes = bounded_sum(bytes, t.bytes);
    }
    for (const auto& [where, sum] : sums) out.transfers.push_back(sum);
  }

  void functions(Report& out) const {
    std::vector<int64_t> sites(e_.functions.size(), 0);
    for (const Function& f : e_.functions) {
      for (const Step& s : f.steps) {
        for_each_call(s, [&](const Call& c) { ++sites[static_cast<size_t>(c.function)]; });
      }
    }
    for (const Program& p : e_.programs) {
      for (const Entry& x : p.entries) ++sites[static_cast<size_t>(x.function)];
    }
    for (size_t i = 0; i < e_.functions.size(); ++i) {
      const Function& f = e_.functions[i];
      FunctionReport r{f.name,  f.device,      static_cast<int64_t>(f.steps.size()),
                       0,       f.frame_bytes, f.frame_bound,
                       sites[i]};
      for (const Step& s : f.steps) r.program_bytes += size_of_step(s);
      out.program_bytes += r.program_bytes;
      out.functions.push_back(std::move(r));
    }
  }

  const Executable& e_;
  const size_t most_;
  std::vector<Peak> peaks_;
};

}  // namespace

std::string grouped(int64_t n) {
  std::string text = std::to_string(n);
  for (int64_t at = static_cast<int64_t>(text.size()) - 3; at > (n < 0 ? 1 : 0); at -= 3) {
    text.insert(static_cast<size_t>(at), 1, ',');
  }
  return text;
}

Report report(const Executable& executable, int most_holders) {
  return Reporter(executable, most_holders).run();
}

std::string summary(const Report& report) {
  std::string out;
  const auto add = [&]<typename... Args>(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(out), format, std::forward<Args>(args)...);
    out += '\n';
  };
  for (const MemoryReport& m : report.memories) {
    const std::string budget =
        m.budget_bytes < 0 ? "" : fmt::format(" of a budget of {}", grouped(m.budget_bytes));
    add("{}: {} bytes{}, {:.3f} x the live-set bound of {}", m.name, grouped(m.total_bytes), budget,
        m.ratio, grouped(m.bound_bytes));
    const std::pair<const char*, int64_t> parts[] = {
        {"variables and constants", m.persistent_bytes},
        {"frames", m.frame_bytes},
        {"workspace", m.workspace_bytes},
        {"channel slots", m.slot_bytes},
        {"remote buffers", m.tier_bytes},
        {"staging of direct transfers", m.staging_bytes},
        {"checksums of entries", m.checksum_bytes}};
    for (const auto& [what, bytes] : parts) {
      if (bytes > 0) add("  {:>15}  {}", grouped(bytes), what);
    }
    if (m.holders.empty()) continue;
    add("  at the peak{}:",
        m.peak_program.empty() ? "" : fmt::format(" (program '{}')", m.peak_program));
    for (const Holder& h : m.holders) {
      add("  {:>15}  {} {}{}", grouped(h.bytes), h.kind, h.name,
          h.where.empty() ? "" : " in " + h.where);
    }
  }
  for (const TransferReport& t : report.transfers) {
    add("{} on queue {}, a run of '{}': {} in, {} bytes; {} out, {} bytes", t.memory, t.queue,
        t.program, grouped(t.loads), grouped(t.loaded_bytes), grouped(t.stores),
        grouped(t.stored_bytes));
  }
  size_t width = 8;
  for (const FunctionReport& f : report.functions) width = std::max(width, f.name.size());
  add("{:{}}  device  calls   steps  program bytes   frame bytes", "function", width);
  for (const FunctionReport& f : report.functions) {
    add("{:{}}  {:>6}  {:>5}  {:>6}  {:>13}  {:>12}", f.name, width, f.device,
        grouped(f.call_sites), grouped(f.steps), grouped(f.program_bytes), grouped(f.frame_bytes));
  }
  add("the program itself takes {} bytes", grouped(report.program_bytes));
  return out;
}

}  // namespace sluice::exe
