#include "sluice/report/plan_report.h"

#include <algorithm>
#include <limits>
#include <map>

#include "sluice/exe/visit_step.h"
#include "sluice/exe/words.h"
#include "sluice/report/plan_names.h"
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
  Reporter(const exe::Executable& e, const PlanNames& names) : e_(e), plan_names_(names) {}

  void run(PlanReport& out) const {
    functions(out);
    const TrafficCounter traffic(e_);
    for (const exe::Program& p : e_.programs) {
      transfers(p, traffic.of(p), out);
      SentReport& sent = out.sent.emplace_back(SentReport{p.name});
      for (const Messages& m : traffic.messages_of(p))
        sent.message_bytes = bounded_sum(sent.message_bytes, m.bytes);
      for (const CollectiveBytes& c : traffic.collectives_of(p))
        sent.collective_bytes = bounded_sum(sent.collective_bytes, c.sent_bytes());
    }
    for (const exe::Feed& f : e_.feeds) out.feeds.push_back(slots_of(f));
  }

 private:
  std::string memory_of(const Traffic& t) const {
    if (t.kind == exe::TransferKind::kStreamIn || t.kind == exe::TransferKind::kStreamOut)
      return "streams";
    const exe::RemoteBufferPlan& b = e_.remote_buffers[exe::BufferId(t.object)];
    const exe::Space space = e_.arenas[b.arena].space;
    for (const exe::Tier& tier : e_.tiers) {
      if (tier.space == space) return "tier " + tier.name;
    }
    return std::string(exe::word(space)) + " memory";
  }

  std::string slots_of(const exe::Feed& feed) const {
    std::string text = fmt::format("{} {}:", feed.name, feed.input ? "in" : "out");
    for (const exe::FeedRing& r : feed.rings) {
      const std::string& stream = e_.streams[r.stream].name;
      const bool prefixed = stream.starts_with(feed.name + ".");
      text += fmt::format("{} {} {}", &r == &feed.rings.front() ? "" : ",",
                          prefixed ? stream.substr(feed.name.size() + 1) : stream, r.slots);
    }
    return text + " slots";
  }

  void transfers(const exe::Program& program, const std::vector<Traffic>& traffic,
                 PlanReport& out) const {
    std::map<std::pair<std::string, std::string>, TransferReport> sums;
    for (const Traffic& t : traffic) {
      const exe::Device& device = e_.devices[t.device];
      const std::string memory = memory_of(t);
      const std::string& queue = at(device.queues, t.queue).name;
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
    Ids<exe::FunctionId, int64_t> sites(e_.functions.size(), 0);
    for (const exe::Function& f : e_.functions) {
      for (const exe::Step& s : f.steps) {
        exe::for_each_call(s, [&](const exe::Call& c) { ++sites[c.function]; });
      }
    }
    for (const exe::Program& p : e_.programs) {
      for (const exe::Start& x : p.starts) ++sites[x.function];
    }
    std::map<std::string, int64_t> slow;
    for (const exe::FunctionId i : e_.functions.ids()) {
      const exe::Function& f = e_.functions[i];
      FunctionReport r{.name = f.name,
                       .model_name = plan_names_.of_function(i),
                       .device = f.device,
                       .steps = static_cast<int64_t>(f.steps.size()),
                       .frame_bytes = f.frame_bytes,
                       .bound_bytes = f.frame_bound,
                       .call_sites = sites[i]};
      for (const exe::Step& s : f.steps) {
        r.program_bytes += size_of_step(s);
        const auto* const kernel = std::get_if<exe::Kernel>(&s.body);
        if (kernel != nullptr && exe::is_reference_kernel(kernel->key)) ++slow[kernel->op];
      }
      out.program_bytes += r.program_bytes;
      out.functions.push_back(std::move(r));
    }
    for (const auto& [op, steps] : slow) out.reference_steps.push_back({op, steps});
    std::stable_sort(out.reference_steps.begin(), out.reference_steps.end(),
                     [](const auto& a, const auto& b) { return a.steps > b.steps; });
    out.phased = plan_names_.has_phases();
    for (size_t p = 0; p < e_.programs.size(); ++p) {
      std::vector<std::string> blocks = plan_names_.blocks_of_program(static_cast<int32_t>(p));
      if (!blocks.empty()) out.blocks.push_back({e_.programs[p].name, std::move(blocks)});
    }
  }

  const exe::Executable& e_;
  const PlanNames& plan_names_;
};

template <typename Entry>
void sort_by_bytes(std::vector<Entry>& rows) {
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Entry& a, const Entry& b) { return a.bytes > b.bytes; });
}

MemoryShares shares_of(const exe::MemoryNeeds& memory) {
  MemoryShares out;
  std::map<std::string, int64_t> kinds;
  std::map<std::string, size_t> rows;
  int64_t rest = memory.total_bytes;
  for (const exe::PeakObject& h : memory.peak_objects) {
    const auto& [kind, name] = h.contents;
    kinds[kind] += h.bytes;
    rest -= h.bytes;
    const auto [row, first] = rows.try_emplace(name, out.peak_objects.size());
    if (first) {
      out.peak_objects.push_back({name, kind, h.bytes});
    } else {
      out.peak_objects[row->second].bytes += h.bytes;
    }
  }
  if (rest != 0) kinds["padding and gaps"] += rest;
  for (const auto& [kind, bytes] : kinds) out.kinds.push_back({kind, bytes});
  sort_by_bytes(out.kinds);
  sort_by_bytes(out.peak_objects);
  return out;
}

}  // namespace

PlanReport plan_report(const exe::Executable& executable, int max_objects) {
  PlanReport out{.memories = exe::memory_needs(executable, std::numeric_limits<int>::max())};
  const PlanNames names(executable);
  const auto max = static_cast<size_t>(std::max(max_objects, 0));
  for (exe::MemoryNeeds& m : out.memories) {
    MemoryShares shares = shares_of(m);
    if (shares.peak_objects.size() > max) shares.peak_objects.resize(max);
    if (m.peak_objects.size() > max) m.peak_objects.resize(max);
    out.shares.push_back(std::move(shares));
  }
  Reporter(executable, names).run(out);
  return out;
}

std::string summary(const exe::Executable& executable) { return summary(plan_report(executable)); }

}  // namespace sluice::report
