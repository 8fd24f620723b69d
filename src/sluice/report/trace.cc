#include "sluice/report/trace.h"

#include <algorithm>
#include <deque>
#include <map>
#include <tuple>
#include <utility>

#include "sluice/report/forecast/step_times.h"

namespace sluice::report {
namespace {

/// Messages of a channel: when each one that was sent arrived, and when each slot became free.
struct Line {
  std::deque<double> arrived;
  std::deque<double> freed;  ///< One for each free slot.
};

/// One activation of a function.
struct Activation {
  exe::FunctionId function{0};
  size_t step = 0;
  int64_t iterations_left = 0;  ///< Iterations of the loop that called it, after this one.
  Provenance call;              ///< Provenance of its call in the current iteration.
  std::map<int32_t, double> flying = {};  ///< End of each transfer that is not awaited, by token.
};

/// Consecutive kernels that run one part of a block for one micro-batch.
struct Stretch {
  int32_t part = -1;
  exe::FunctionId function{0};
  int32_t micro_batch = 0;
  double begin = 0;
  double end = 0;
};

/// A device in the simulation.
struct Walker {
  exe::DeviceId device{0};
  double now = 0;
  std::vector<double> busy;  ///< Time until which each queue is busy.
  std::vector<Activation> stack;
  Stretch stretch;
};

class Simulation {
 public:
  Simulation(const exe::Executable& e, const Rates& rates, const PlanNames& names,
             const std::vector<std::string>& parts, int64_t max)
      : e_(e),
        times_(e, rates),
        plan_names_(names),
        max_(static_cast<size_t>(std::max<int64_t>(max, 0))) {
    for (const std::string& part : parts) parts_.emplace(part, static_cast<int32_t>(parts_.size()));
    for (const exe::Channel& c : e.channels)
      lines_.push_back(
          {{},
           std::deque<double>(static_cast<size_t>(std::min<int64_t>(c.capacity, kMaxSlots)), 0.0)});
  }

  Trace run(const exe::Program& program) {
    std::vector<Walker> walkers;
    for (const exe::Start& start : program.starts) {
      Walker& w = walkers.emplace_back();
      w.device = start.device;
      w.busy.resize(e_.devices[start.device].queues.size());
      w.stack.push_back({start.function});
    }
    // Advance the device with the earliest time, because remote memory serves transfers in order of
    // time.
    while (trace_.events.size() < max_) {
      Walker* next = nullptr;
      for (Walker& w : walkers) {
        if (!w.stack.empty() && can_advance(w) && (next == nullptr || w.now < next->now)) next = &w;
      }
      if (next == nullptr) break;
      advance(*next);
    }
    for (Walker& w : walkers) end_stretch(w);
    for (const Walker& w : walkers) trace_.complete = trace_.complete && w.stack.empty();
    for (const Event& event : trace_.events) trace_.seconds = std::max(trace_.seconds, event.end);
    return std::move(trace_);
  }

 private:
  static constexpr int64_t kMaxSlots = 1 << 16;

  const std::vector<exe::Step>& steps(exe::FunctionId function) const {
    return e_.functions[function].steps;
  }
  Line& line(exe::ChannelId channel) { return lines_[channel]; }

  bool can_advance(const Walker& w) {
    const Activation& at = w.stack.back();
    if (at.step >= steps(at.function).size()) return true;
    const exe::Step& step = steps(at.function)[at.step];
    if (const auto* s = std::get_if<exe::Send>(&step.body)) return !line(s->channel).freed.empty();
    if (const auto* r = std::get_if<exe::Receive>(&step.body))
      return !line(r->channel).arrived.empty();
    return true;
  }

  void add(Event::Activity kind, const Walker& w, int32_t queue, double begin, double end) {
    if (end <= begin) return;
    const Activation& at = w.stack.back();
    trace_.events.push_back(
        {kind, w.device, queue, at.function, static_cast<int32_t>(at.step), begin, end});
  }

  void await(Walker& w, double until) {
    add(Event::Activity::kWait, w, 0, w.now, until);
    w.now = std::max(w.now, until);
  }

  void work(Walker& w, double seconds) {
    add(Event::Activity::kStep, w, 0, w.now, w.now + seconds);
    w.now += seconds;
  }

  void enter(Walker& w, const exe::Step& step, exe::FunctionId function,
             int64_t iterations_left = 0) {
    w.stack.push_back(
        {function, 0, iterations_left, plan_names_.of_step(step, w.stack.back().call)});
  }

  void end_stretch(Walker& w) {
    const Stretch& s = w.stretch;
    if (s.part >= 0 && s.end > s.begin) {
      trace_.events.push_back({Event::Activity::kBlockPass, w.device, 0, s.function, s.micro_batch,
                               s.begin, s.end, 0, s.part});
    }
    w.stretch.part = -1;
  }

  // Continues the stretch of the current kernel's part and micro-batch, or begins another stretch.
  void add_to_stretch(Walker& w, const exe::Step& step, double begin) {
    const Activation& at = w.stack.back();
    const Provenance own = plan_names_.of_step(step, at.call);
    const auto part = parts_.find(plan_names_.part_of_kernel(step, own));
    if (part == parts_.end()) return;
    const auto micro_batch = static_cast<int32_t>(own.at.micro_batch);
    if (w.stretch.part != part->second || w.stretch.micro_batch != micro_batch) {
      end_stretch(w);
      w.stretch = {part->second, at.function, micro_batch, begin, begin};
    }
    w.stretch.end = w.now;
  }

  // Ends an activation, or begins the next iteration of its loop.
  void leave(Walker& w) {
    Activation& at = w.stack.back();
    if (at.iterations_left > 0) {
      --at.iterations_left;
      at.call.at = at.call.at + at.call.per_iteration;
      at.step = 0;
      return;
    }
    w.stack.pop_back();
    if (!w.stack.empty()) ++w.stack.back().step;
  }

  void advance(Walker& w) {
    Activation& at = w.stack.back();
    if (at.step >= steps(at.function).size()) return leave(w);
    const exe::Step& step = steps(at.function)[at.step];
    const double seconds = times_.seconds(at.function, at.step);
    if (const auto* call = std::get_if<exe::Call>(&step.body))
      return enter(w, step, call->function);
    if (const auto* branch = std::get_if<exe::Branch>(&step.body))
      return enter(w, step, branch->then_call.function);
    if (const auto* loop = std::get_if<exe::Loop>(&step.body)) {
      if (loop->trips > 0) return enter(w, step, loop->body.function, loop->trips - 1);
    } else if (const auto* issue = std::get_if<exe::Issue>(&step.body)) {
      transfer(w, *issue, seconds);
    } else if (const auto* wait = std::get_if<exe::Wait>(&step.body)) {
      const auto flying = at.flying.find(wait->token);
      if (flying != at.flying.end()) await(w, flying->second);
    } else if (const auto* send = std::get_if<exe::Send>(&step.body)) {
      await(w, line(send->channel).freed.front());
      line(send->channel).freed.pop_front();
      work(w, seconds);
      line(send->channel).arrived.push_back(w.now);
    } else if (const auto* receive = std::get_if<exe::Receive>(&step.body)) {
      await(w, line(receive->channel).arrived.front());
      line(receive->channel).arrived.pop_front();
      work(w, seconds);
      line(receive->channel).freed.push_back(w.now);
    } else {
      const double begin = w.now;
      work(w, seconds);
      add_to_stretch(w, step, begin);
    }
    ++w.stack.back().step;
  }

  void transfer(Walker& w, const exe::Issue& issue, double seconds) {
    const bool remote = times_.memory_of(issue.kind, issue.object) != 0;
    double& queue = at(w.busy, issue.queue);
    double begin = issue.queue == 0 ? w.now : std::max(w.now, queue);
    if (remote) begin = std::max(begin, remote_busy_);
    if (issue.queue == 0) await(w, begin);
    queue = begin + seconds;
    if (remote) remote_busy_ = queue;
    add(Event::Activity::kStep, w, issue.queue, begin, queue);
    if (issue.queue == 0) {
      w.now = queue;
    } else {
      w.stack.back().flying[issue.token] = queue;
    }
  }

  const exe::Executable& e_;
  const StepTimes times_;
  const PlanNames& plan_names_;
  std::map<std::string, int32_t> parts_;  ///< Numbers by name.
  const size_t max_;
  Ids<exe::ChannelId, Line> lines_;
  double remote_busy_ = 0;
  Trace trace_;
};

}  // namespace

Trace planned_trace(const exe::Executable& executable, const exe::Program& program,
                    const Rates& rates, const PlanNames& names,
                    const std::vector<std::string>& parts, int64_t max) {
  return Simulation(executable, rates, names, parts, max).run(program);
}

std::vector<Overlap> overlaps(const exe::Executable& executable, const Trace& trace) {
  const auto step_of = [&](const Event& e) -> const exe::Step& {
    return at(executable.functions[e.function].steps, e.step);
  };
  // The compute queue does one thing at a time, so these intervals ascend.
  Ids<exe::DeviceId, std::vector<std::pair<double, double>>> computes(executable.devices.size());
  for (const Event& e : trace.events) {
    if (e.kind != Event::Activity::kStep) continue;
    if (std::holds_alternative<exe::Kernel>(step_of(e).body) ||
        std::holds_alternative<exe::Collective>(step_of(e).body))
      computes[e.device].emplace_back(e.begin, e.end);
  }
  std::map<std::tuple<exe::DeviceId, exe::TransferKind, int32_t>, Overlap> sums;
  for (const Event& e : trace.events) {
    const auto* issue =
        e.kind == Event::Activity::kStep ? std::get_if<exe::Issue>(&step_of(e).body) : nullptr;
    if (issue == nullptr) continue;
    const auto& busy = computes[e.device];
    double hidden = 0;
    for (auto at = std::partition_point(busy.begin(), busy.end(),
                                        [&](const auto& i) { return i.second <= e.begin; });
         at != busy.end() && at->first < e.end; ++at)
      hidden += std::min(at->second, e.end) - std::max(at->first, e.begin);
    Overlap& sum = sums[{e.device, issue->kind, issue->object}];
    sum.kind = issue->kind;
    sum.object = issue->object;
    sum.device = e.device;
    ++sum.transfers;
    sum.hidden += hidden;
    sum.exposed += e.end - e.begin - hidden;
  }
  std::vector<Overlap> all;
  for (const auto& [key, sum] : sums) all.push_back(sum);
  return all;
}

}  // namespace sluice::report
