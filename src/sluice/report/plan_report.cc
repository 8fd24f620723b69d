#include "sluice/report/plan_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>

#include "sluice/exe/visit_step.h"
#include "sluice/exe/words.h"
#include "sluice/report/summary.h"
#include "sluice/report/traffic.h"

namespace sluice::report {
namespace {

int64_t size_of_expression(const exe::IndexExpr& x) {
  return static_cast<int64_t>(x.nodes().size() * sizeof(exe::IndexExpr::Node));
}

int64_t size_of_operand(const exe::Operand& o) {
  return static_cast<int64_t>(sizeof(exe::Operand) + o.spec.shape.dims().size() * sizeof(int64_t)) +
         size_of_expression(o.at.slot);
}

int64_t size_of_step(const exe::Step& step) {
  auto bytes = static_cast<int64_t>(sizeof(exe::Step) + step.where.size());
  exe::for_each_operand(step, [&](const exe::Operand& o) { bytes += size_of_operand(o); });
  exe::for_each_call(step, [&](const exe::Call& c) {
    for (const exe::Operand& o : c.args) bytes += size_of_operand(o);
    for (const exe::IndexExpr& x : c.index_args)
      bytes += static_cast<int64_t>(sizeof(exe::IndexExpr)) + size_of_expression(x);
  });
  if (const auto* k = std::get_if<exe::Kernel>(&step.body)) {
    bytes += static_cast<int64_t>(k->attrs.items.size() * sizeof(k->attrs.items[0]));
    for (const exe::IndexExpr& x : k->scalars)
      bytes += static_cast<int64_t>(sizeof(exe::IndexExpr)) + size_of_expression(x);
  }
  return bytes;
}

class Reporter {
 public:
  explicit Reporter(const exe::Executable& e) : e_(e) {}

  void run(PlanReport& out) const {
    functions(out);
    const TrafficCounter traffic(e_);
    for (const exe::Program& p : e_.programs) transfers(p, traffic.of(p), out);
  }

 private:
  std::string memory_of(const Traffic& t) const {
    if (t.kind == exe::TransferKind::kStreamIn || t.kind == exe::TransferKind::kStreamOut)
      return "streams";
    const exe::RemoteBufferPlan& b = e_.remote_buffers[static_cast<size_t>(t.object)];
    const exe::Space space = e_.arenas[static_cast<size_t>(b.arena)].space;
    for (const exe::Tier& tier : e_.tiers) {
      if (tier.space == space) return "tier " + tier.name;
    }
    return std::string(exe::word(space)) + " memory";
  }

  void transfers(const exe::Program& program, const std::vector<Traffic>& traffic,
                 PlanReport& out) const {
    std::map<std::pair<std::string, std::string>, TransferReport> sums;
    for (const Traffic& t : traffic) {
      const exe::Device& device = e_.devices[static_cast<size_t>(t.device)];
      const std::string memory = memory_of(t);
      const std::string& queue = device.queues[static_cast<size_t>(t.queue)].name;
      TransferReport& sum =
          sums.try_emplace({memory, queue}, TransferReport{program.name, memory, queue})
              .first->second;
      const bool load =
          t.kind == exe::TransferKind::kStreamIn || t.kind == exe::TransferKind::kRemoteLoad;
      int64_t& count = load ? sum.loads : sum.stores;
      int64_t& bytes = load ? sum.loaded_bytes : sum.stored_bytes;
      count = bounded_sum(count, t.transfers);
      bytes = bounded_sum(bytes, t.bytes);
    }
    for (const auto& [where, sum] : sums) out.transfers.push_back(sum);
  }

  void functions(PlanReport& out) const {
    std::vector<int64_t> sites(e_.functions.size(), 0);
    for (const exe::Function& f : e_.functions) {
      for (const exe::Step& s : f.steps) {
        exe::for_each_call(s,
                           [&](const exe::Call& c) { ++sites[static_cast<size_t>(c.function)]; });
      }
    }
    for (const exe::Program& p : e_.programs) {
      for (const exe::Start& x : p.starts) ++sites[static_cast<size_t>(x.function)];
    }
    for (size_t i = 0; i < e_.functions.size(); ++i) {
      const exe::Function& f = e_.functions[i];
      FunctionReport r{f.name,  f.device,      static_cast<int64_t>(f.steps.size()),
                       0,       f.frame_bytes, f.frame_bound,
                       sites[i]};
      for (const exe::Step& s : f.steps) r.program_bytes += size_of_step(s);
      out.program_bytes += r.program_bytes;
      out.functions.push_back(std::move(r));
    }
  }

  const exe::Executable& e_;
};

}  // namespace

std::string grouped(int64_t n) {
  std::string text = std::to_string(n);
  for (int64_t at = static_cast<int64_t>(text.size()) - 3; at > (n < 0 ? 1 : 0); at -= 3) {
    text.insert(static_cast<size_t>(at), 1, ',');
  }
  return text;
}

PlanReport plan_report(const exe::Executable& executable, int most_holders) {
  PlanReport out{.memories = exe::memory_needs(executable, most_holders)};
  Reporter(executable).run(out);
  return out;
}

std::string summary(const PlanReport& report) {
  std::string out;
  const auto add = [&]<typename... Args>(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(out), format, std::forward<Args>(args)...);
    out += '\n';
  };
  for (const exe::MemoryNeeds& m : report.memories) {
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
    for (const exe::Holder& h : m.holders) {
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

std::string summary(const exe::Executable& executable) { return summary(plan_report(executable)); }

}  // namespace sluice::report
