#include "sluice/report/report.h"

#include <algorithm>
#include <map>
#include <utility>

#include "sluice/exe/call_order.h"
#include "sluice/exe/visit_step.h"
#include "sluice/exe/words.h"
#include "sluice/report/forecast/step_times.h"
#include "sluice/report/measured_times.h"
#include "sluice/report/plan_names.h"

namespace sluice::report {
namespace {

// Tensors do not share an arena of such a kind: the whole arena is one object.
bool is_one_object(exe::ArenaKind kind) {
  return kind != exe::ArenaKind::kPersistent && kind != exe::ArenaKind::kFrames &&
         kind != exe::ArenaKind::kTier;
}

class Maker {
 public:
  Maker(const exe::Executable& e, const Rates& rates)
      : e_(e), rates_(rates), times_(e, rates), plan_names_(e), plan_(plan_report(e, 0)) {}

  Report run(int64_t max_events) {
    Report r;
    r.replicas = e_.replicas;
    r.rates = rates_;
    r.devices = e_.devices;
    for (const exe::StreamPort& s : e_.streams) r.streams.push_back(s.name);
    for (const exe::RemoteBufferPlan& b : e_.remote_buffers) {
      r.remote_buffers.push_back(b.name);
      r.remote_entries.push_back(b.entries);
    }
    for (const exe::Arena& a : e_.arenas)
      r.arenas.push_back(
          {a.name, std::string(word(a.kind)), std::string(word(a.space)), a.device, a.bytes});
    add_objects(r);
    r.functions.resize(e_.functions.size());
    for (const exe::FunctionId f : exe::callees_first(e_)) add_function(f, r);
    add_memories(r);
    add_programs(max_events, r);
    return r;
  }

 private:
  void add_objects(Report& r) const {
    for (const exe::VariableId i : e_.variables.ids()) {
      const exe::VariablePlan& v = e_.variables[i];
      if (v.buffer >= 0) continue;
      const auto [kind, name] = plan_names_.contents().of_variable(i);
      r.objects.push_back({v.path, name, kind, v.arena, v.offset, v.bytes});
    }
    for (const exe::ConstantId i : e_.constants.ids()) {
      const exe::ConstantPlan& c = e_.constants[i];
      const auto [kind, name] = plan_names_.contents().of_constant(i);
      r.objects.push_back(
          {c.name, name, kind, c.arena, c.offset, static_cast<int64_t>(c.data.size())});
    }
    for (const exe::BufferId i : e_.remote_buffers.ids()) {
      const exe::RemoteBufferPlan& b = e_.remote_buffers[i];
      const auto [kind, name] = plan_names_.contents().of_remote(i);
      r.objects.push_back({b.name, name, kind, b.arena, b.offset, b.entries * b.entry_stride});
    }
    for (const exe::ArenaId a : e_.arenas.ids()) {
      const exe::Arena& arena = e_.arenas[a];
      if (!is_one_object(arena.kind) || arena.bytes == 0) continue;
      const auto [kind, name] = exe::MemoryContents::of_arena(arena.kind);
      r.objects.push_back({arena.name, name, kind, a, 0, arena.bytes});
    }
  }

  void add_function(exe::FunctionId id, Report& r) const {
    const exe::Function& fn = e_.functions[id];
    FunctionTimeline& f = r.functions[id];
    f.name = fn.name;
    f.model_name = plan_.functions[id].model_name;
    f.part = plan_names_.part_of_function(id);
    if (!f.part.empty()) number_of(f.part, r);
    f.device = fn.device;
    f.frame_bytes = fn.frame_bytes;
    f.program_bytes = plan_.functions[id].program_bytes;
    std::vector<int64_t> changes(fn.steps.size() + 1);
    const auto change = [&](int64_t step) -> int64_t& {
      return at(changes, std::clamp<int64_t>(step, 0, std::ssize(fn.steps)));
    };
    for (size_t b = 0; b < fn.buffers.size(); ++b) {
      const exe::FrameBuffer& buffer = fn.buffers[b];
      if (exe::holds_frame(fn, buffer)) continue;
      const auto [kind, name] = plan_names_.contents().of_buffer(id, b);
      f.buffers.push_back(
          {buffer.name, name, kind, buffer.offset, buffer.bytes, buffer.begin, buffer.end});
      change(buffer.begin) += buffer.bytes;
      change(buffer.end) -= buffer.bytes;
    }
    int64_t live = 0;
    for (size_t s = 0; s < fn.steps.size(); ++s) {
      live += changes[s];
      f.steps.push_back(step_of(fn.steps[s]));
      f.steps.back().live_bytes = live;
      f.steps.back().seconds = times_.seconds(id, s);
      for (const std::string& part : plan_names_.parts_of_step(id, s))
        f.steps.back().parts.push_back(number_of(part, r));
      int64_t called = 0;
      for (const exe::FunctionId callee : f.steps.back().calls)
        called = std::max(called, r.functions[callee].peak_bytes);
      f.peak_bytes = std::max(f.peak_bytes, bounded_sum(live, called));
    }
  }

  // Returns the index of a part in Report::parts. Adds the part if it is new.
  static int32_t number_of(const std::string& part, Report& r) {
    const auto found = std::find(r.parts.begin(), r.parts.end(), part);
    if (found != r.parts.end()) return static_cast<int32_t>(found - r.parts.begin());
    r.parts.push_back(part);
    return static_cast<int32_t>(r.parts.size()) - 1;
  }

  StepReport step_of(const exe::Step& step) const {
    StepReport s{.where = step.where};
    const auto moves = [&](std::string kind, std::string name, int64_t bytes, int32_t queue = 0) {
      s.kind = std::move(kind);
      s.name = std::move(name);
      s.bytes = bytes;
      s.queue = queue;
    };
    exe::for_each_call(step, [&](const exe::Call& c) { s.calls.push_back(c.function); });
    if (!s.calls.empty()) {
      const auto* loop = std::get_if<exe::Loop>(&step.body);
      if (loop != nullptr) s.trips = loop->trips;
      moves(loop != nullptr       ? "loop"
            : s.calls.size() == 2 ? "branch"
                                  : "call",
            e_.functions[s.calls[0]].name, 0);
    } else if (const auto* k = std::get_if<exe::Kernel>(&step.body)) {
      moves("kernel", k->op, moved_bytes(k->operands));
      s.kernel = k->key;
      s.flops = k->flops;
    } else if (const auto* c = std::get_if<exe::Collective>(&step.body)) {
      moves("collective", c->op, operand_bytes(c->operands));
    } else if (const auto* i = std::get_if<exe::Issue>(&step.body)) {
      moves(std::string(word(i->kind)),
            i->is_stream() ? e_.streams[i->stream()].name : e_.remote_buffers[i->buffer()].name,
            i->memory.bytes, i->queue);
    } else if (const auto* w = std::get_if<exe::Wait>(&step.body)) {
      moves("wait", "", 0, w->queue);
    } else if (const auto* send = std::get_if<exe::Send>(&step.body)) {
      moves("send", channel(send->channel), send->operand.bytes);
    } else if (const auto* receive = std::get_if<exe::Receive>(&step.body)) {
      moves("receive", channel(receive->channel), receive->operand.bytes);
    }
    return s;
  }

  const std::string& channel(int32_t c) const { return e_.channels[exe::ChannelId(c)].name; }

  // Whether an arena is in a memory. Pinned memory belongs to the tier of the host.
  bool belongs(const exe::Arena& arena, const exe::MemoryNeeds& memory) const {
    if (memory.device >= 0)
      return arena.space == exe::Space::kDevice && arena.device == memory.device;
    for (const exe::Tier& t : e_.tiers) {
      if ("tier " + t.name != memory.name) continue;
      return arena.space == t.space ||
             (t.space == exe::Space::kHost && arena.space == exe::Space::kPinned);
    }
    return false;
  }

  void add_memories(Report& r) const {
    for (size_t i = 0; i < plan_.memories.size(); ++i) {
      const exe::MemoryNeeds& needs = plan_.memories[i];
      MemoryBytes& m = r.memories.emplace_back();
      m.name = needs.name;
      m.device = needs.device;
      m.budget = needs.budget_bytes;
      m.planned = needs.total_bytes;
      m.kinds = plan_.shares[i].kinds;
      for (const HeldObject& o : r.objects) {
        if (belongs(e_.arenas[exe::ArenaId(o.arena)], needs)) m.always_live += o.bytes;
      }
      if (needs.device < 0)
        m.always_live *= e_.replicas;  // A tier has the entries of all replicas.
      for (const exe::Program& p : e_.programs) {
        for (const exe::Start& start : p.starts) {
          const int64_t peak = r.functions[start.function].peak_bytes;
          if (start.device != needs.device || peak <= m.peak_live) continue;
          m.peak_live = peak;
          m.peak_program = p.name;
        }
      }
      for (const FunctionTimeline& f : r.functions) {
        if (f.device == needs.device) m.program += f.program_bytes;
      }
      m.gaps = m.planned - m.always_live - m.peak_live;
    }
  }

  void add_programs(int64_t max_events, Report& r) const {
    const TrafficCounter counter(e_);
    const std::vector<ProgramForecast> forecasts = forecast(e_, rates_);
    for (size_t p = 0; p < e_.programs.size(); ++p) {
      const exe::Program& program = e_.programs[p];
      ProgramReport& out = r.programs.emplace_back();
      out.name = program.name;
      for (const exe::Start& start : program.starts)
        out.starts.emplace_back(start.device, start.function);
      out.seconds = forecasts[p].seconds;
      out.forecasts = forecasts[p].transfers;
      out.work = counter.work_of(program);
      out.transfers = counter.of(program);
      out.messages = counter.messages_of(program);
      out.collectives = counter.collectives_of(program);
      out.accesses = remote_accesses(e_, program);
      out.trace = planned_trace(e_, program, rates_, plan_names_, r.parts, max_events);
      out.overlaps = overlaps(e_, out.trace);
      add_kernels(e_, program, r, out);
    }
  }

  const exe::Executable& e_;
  const Rates& rates_;
  const StepTimes times_;
  const PlanNames plan_names_;
  const PlanReport plan_;
};

}  // namespace

double FeedReport::elements_per_second() const {
  return host_seconds > 0 ? static_cast<double>(moved) / host_seconds : 0;
}

double FeedReport::mean_occupancy() const {
  int64_t entries = 0, held = 0;
  for (size_t k = 0; k < occupancy.size(); ++k) {
    entries += occupancy[k];
    held += static_cast<int64_t>(k) * occupancy[k];
  }
  return entries > 0 ? static_cast<double>(held) / static_cast<double>(entries) : 0;
}

Report make_report(const exe::Executable& executable, const Rates& rates, int64_t max_events) {
  return Maker(executable, rates).run(max_events);
}

}  // namespace sluice::report
