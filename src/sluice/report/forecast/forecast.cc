#include "sluice/report/forecast/forecast.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <optional>

#include "sluice/exe/call_order.h"
#include "sluice/exe/visit_step.h"
#include "sluice/report/forecast/step_times.h"
#include "sluice/report/plan_report.h"
#include "sluice/report/traffic.h"

namespace sluice::report {
namespace {

// Simulated iterations. Later ones take as long as the last one.
constexpr int64_t kMaxIterations = 32;
// Simulated iterations of a loop with messages. Later ones take the mean time of the second half.
constexpr int64_t kMaxMessageIterations = 128;

/// State of a device in the simulation. All times are in seconds.
struct State {
  double now = 0;            // Time that the compute queue has reached.
  std::vector<double> busy;  // Time until which each queue is busy; remote memory last.
  std::vector<double> took;  // Time of transfers, by memory.
  std::vector<double> waited;
  double message_wait = 0;
  double collectives = 0;
};

/// A transfer on an I/O queue that no step has waited for.
struct Outstanding {
  int32_t token;
  int memory;
  double end;
};

/// The messages from one device to another one.
struct ChannelTimes {
  std::deque<double> arrivals;  // Arrival times of messages that are not received yet.
  int64_t unused = 0;           // Slots that have not held a message.
  std::deque<double> freed;     // Times at which other free slots became free.
};

/// Returns the times that one iteration or call adds. Valid if all queues are idle before and after
/// it.
State operator-(State after, const State& before) {
  after.now -= before.now;
  after.message_wait -= before.message_wait;
  after.collectives -= before.collectives;
  for (size_t i = 0; i < after.took.size(); ++i) {
    after.took[i] -= before.took[i];
    after.waited[i] -= before.waited[i];
  }
  return after;
}

bool is_idle(const State& s) {
  return std::all_of(s.busy.begin(), s.busy.end(), [&](double until) { return until <= s.now; });
}

void add_iterations(const State& iteration, double times, State& s) {
  s.now += times * iteration.now;
  s.message_wait += times * iteration.message_wait;
  s.collectives += times * iteration.collectives;
  for (double& until : s.busy) until += times * iteration.now;
  for (size_t i = 0; i < s.took.size(); ++i) {
    s.took[i] += times * iteration.took[i];
    s.waited[i] += times * iteration.waited[i];
  }
}

class Forecaster {
 public:
  Forecaster(const exe::Executable& e, const Rates& rates)
      : e_(e),
        times_(e, rates),
        idle_iterations_(e.functions.size()),
        has_messages_(e.functions.size()) {
    for (const exe::FunctionId f : exe::callees_first(e)) {
      for (const exe::Step& step : e.functions[f].steps) {
        char& has = has_messages_[f];
        has = has || std::holds_alternative<exe::Send>(step.body) ||
              std::holds_alternative<exe::Receive>(step.body);
        exe::for_each_call(step,
                           [&](const exe::Call& c) { has = has || has_messages_[c.function]; });
      }
    }
  }

  ProgramForecast run(const exe::Program& program, const std::vector<Traffic>& traffic) {
    ProgramForecast out{.program = program.name, .in_cluster = times_.links() != nullptr};
    std::vector<TransferForecast> all;
    for (int m = 0; m < times_.memories(); ++m) all.push_back({times_.name_of_memory(m)});
    for (const Traffic& t : traffic) {
      int64_t& bytes = at(all, times_.memory_of(t.kind, t.object)).bytes;
      bytes = bounded_sum(bytes, bounded_product(e_.replicas, t.bytes));
    }
    const std::vector<State> ends = times_.links() ? run_cluster(program) : run_alone(program);
    double shared = 0;  // Sum over the devices that the workers run one after another.
    for (size_t i = 0; i < ends.size(); ++i) {
      const exe::DeviceId device = program.starts[i].device;
      const State& s = ends[i];
      out.devices.push_back({device, s.now, s.message_wait, s.collectives});
      if (!e_.devices[device].queued && !times_.links()) shared += s.now;
      out.seconds = std::max({out.seconds, s.now, shared});
      for (size_t m = 0; m < all.size(); ++m) {
        all[m].seconds += s.took[m];
        all[m].exposed_seconds += s.waited[m];
      }
    }
    std::sort(out.devices.begin(), out.devices.end(),
              [](const auto& a, const auto& b) { return a.device < b.device; });
    for (const TransferForecast& t : all) {
      if (t.bytes > 0) out.transfers.push_back(t);
    }
    return out;
  }

 private:
  State first_state(exe::DeviceId device) const {
    State s;
    s.busy.resize(e_.devices[device].queues.size() + 1);
    s.took.resize(static_cast<size_t>(times_.memories()));
    s.waited.resize(s.took.size());
    return s;
  }

  // Returns the state of each started device at its end. No device waits for another one.
  std::vector<State> run_alone(const exe::Program& program) {
    std::vector<State> ends;
    for (const exe::Start& start : program.starts)
      walk(start.function, ends.emplace_back(first_state(start.device)));
    return ends;
  }

  // The position of a device in a function with messages, and in its callers.
  struct Position {
    exe::FunctionId function;
    size_t step = 0;
    int64_t iteration = 0;  // Iterations of the loop at that step that have begun.
    State half;             // At the middle iteration of the simulated ones.
    std::vector<Outstanding> flying;
  };
  struct Walker {
    exe::DeviceId device;
    State state;
    std::vector<Position> stack;
  };

  // Advances each device until it blocks on a message that is not sent yet, round-robin.
  std::vector<State> run_cluster(const exe::Program& program) {
    channels_ = Ids<exe::ChannelId, ChannelTimes>(e_.channels.size());
    for (const exe::ChannelId c : channels_.ids()) channels_[c].unused = e_.channels[c].capacity;
    links_.clear();
    std::vector<Walker> walkers;
    for (const exe::Start& start : program.starts)
      walkers.push_back(
          {start.device, first_state(start.device), {{start.function, 0, 0, {}, {}}}});
    for (bool moved = true; moved;) {
      moved = false;
      for (Walker& w : walkers) moved = advance(w) || moved;
    }
    std::vector<State> ends;
    for (Walker& w : walkers) ends.push_back(std::move(w.state));
    return ends;
  }

  // Returns whether the device has run a step.
  bool advance(Walker& w) {
    bool moved = false;
    while (!w.stack.empty()) {
      Position& at = w.stack.back();
      const std::vector<exe::Step>& steps = e_.functions[at.function].steps;
      if (at.step == steps.size()) {
        w.stack.pop_back();
      } else if (const exe::FunctionId* const callee = next_callee(at, w.state)) {
        w.stack.push_back({*callee, 0, 0, {}, {}});
      } else if (at.iteration > 0 || pass(at, w.state)) {  // All iterations have run.
        ++at.step;
        at.iteration = 0;
      } else {
        return moved;
      }
      moved = true;
    }
    return moved;
  }

  // Returns the function with messages that the step at `at` calls next, and counts the call. Null
  // if there is none.
  const exe::FunctionId* next_callee(Position& at, State& s) const {
    const exe::Step& step = e_.functions[at.function].steps[at.step];
    const auto* loop = std::get_if<exe::Loop>(&step.body);
    const auto* call = loop ? &loop->body : std::get_if<exe::Call>(&step.body);
    if (call == nullptr || !has_messages_[call->function]) return nullptr;
    const int64_t trips = loop ? loop->trips : 1;
    const int64_t walked = std::min(trips, kMaxMessageIterations);
    if (at.iteration == walked / 2) at.half = s;
    if (at.iteration < walked) {
      ++at.iteration;
      return &call->function;
    }
    if (walked < trips)
      add_iterations(s - at.half,
                     static_cast<double>(trips - walked) / static_cast<double>(walked - walked / 2),
                     s);
    return nullptr;
  }

  // Runs a step without callees that have messages. Returns false if it waits for another device.
  bool pass(Position& at, State& s) {
    const exe::Step& step = e_.functions[at.function].steps[at.step];
    const double seconds = times_.seconds(at.function, at.step);
    if (const auto* send = std::get_if<exe::Send>(&step.body)) {
      ChannelTimes& channel = channels_[send->channel];
      if (channel.unused > 0) {
        --channel.unused;
      } else if (!await_first(channel.freed, s)) {
        return false;
      }
      s.now += seconds;
      const exe::Channel& c = e_.channels[send->channel];
      double& free = links_[{c.from, c.to}];
      free = std::max(free, s.now) +
             times_.links()->transfer_seconds(c.from, c.to, send->operand.bytes);
      channel.arrivals.push_back(free + times_.links()->latency(c.from, c.to));
    } else if (const auto* receive = std::get_if<exe::Receive>(&step.body)) {
      ChannelTimes& channel = channels_[receive->channel];
      if (!await_first(channel.arrivals, s)) return false;
      s.now += seconds;
      channel.freed.push_back(s.now);
    } else {
      run_step(step, seconds, at.flying, s);
    }
    return true;
  }

  // Waits for the first of `times` and removes it. Returns false if it is not known yet.
  static bool await_first(std::deque<double>& times, State& s) {
    if (times.empty()) return false;
    s.message_wait += std::max(0.0, times.front() - s.now);
    s.now = std::max(s.now, times.front());
    times.pop_front();
    return true;
  }

  void walk(exe::FunctionId f, State& s) {
    const bool idle = is_idle(s);
    if (idle && idle_iterations_[f]) return add_iterations(*idle_iterations_[f], 1, s);
    const State before = s;
    std::vector<Outstanding> flying;
    const std::vector<exe::Step>& steps = e_.functions[f].steps;
    for (size_t i = 0; i < steps.size(); ++i) run_step(steps[i], times_.seconds(f, i), flying, s);
    if (idle && is_idle(s)) idle_iterations_[f] = s - before;
  }

  void run_step(const exe::Step& step, double seconds, std::vector<Outstanding>& flying, State& s) {
    if (const auto* issue = std::get_if<exe::Issue>(&step.body)) {
      const int memory = times_.memory_of(issue->kind, issue->object);
      const double end = transfer(*issue, memory, seconds, s);
      if (issue->queue != 0) flying.push_back({issue->token, memory, end});
    } else if (const auto* wait = std::get_if<exe::Wait>(&step.body)) {
      std::erase_if(flying, [&](const Outstanding& t) {
        if (t.token == wait->token) await(t.memory, t.end, s);
        return t.token == wait->token;
      });
    } else if (const auto* loop = std::get_if<exe::Loop>(&step.body)) {
      repeat(*loop, s);
    } else if (const auto* branch = std::get_if<exe::Branch>(&step.body)) {
      State other = s;
      walk(branch->then_call.function, s);
      walk(branch->else_call.function, other);
      if (other.now > s.now) s = std::move(other);
    } else if (const auto* call = std::get_if<exe::Call>(&step.body)) {
      walk(call->function, s);
    } else {
      s.now += seconds;
      if (std::holds_alternative<exe::Collective>(step.body)) s.collectives += seconds;
    }
  }

  void repeat(const exe::Loop& loop, State& s) {
    const int64_t walked = std::min(loop.trips, kMaxIterations);
    State before;
    for (int64_t i = 0; i < walked; ++i) {
      before = s;
      walk(loop.body.function, s);
    }
    if (walked < loop.trips)
      add_iterations(s - before, static_cast<double>(loop.trips - walked), s);
  }

  /// Starts a transfer and returns the time of its end. A transfer on the compute queue also
  /// advances that queue to the end.
  double transfer(const exe::Issue& issue, int memory, double seconds, State& s) const {
    double& queue = at(s.busy, issue.queue);
    double start = issue.queue == 0 ? s.now : std::max(s.now, queue);
    if (memory != 0) start = std::max(start, s.busy.back());
    const double end = start + seconds;
    if (memory != 0) s.busy.back() = end;
    queue = end;
    at(s.took, memory) += seconds;
    if (issue.queue == 0) await(memory, end, s);
    return end;
  }

  static void await(int memory, double end, State& s) {
    if (end <= s.now) return;
    at(s.waited, memory) += end - s.now;
    s.now = end;
  }

  const exe::Executable& e_;
  const StepTimes times_;
  /// Times that one call adds, if queues are idle before and after.
  Ids<exe::FunctionId, std::optional<State>> idle_iterations_;
  Ids<exe::FunctionId, char> has_messages_;  ///< Whether it or a callee sends or receives.
  Ids<exe::ChannelId, ChannelTimes> channels_;
  /// Time at which the last message from a device to another one has passed.
  std::map<std::pair<exe::DeviceId, exe::DeviceId>, double> links_;
};

}  // namespace

double ProgramForecast::bubble() const {
  double idle = 0;
  for (const DeviceForecast& d : devices) idle += seconds - (d.seconds - d.message_wait);
  return seconds > 0 ? idle / (seconds * static_cast<double>(devices.size())) : 0;
}

std::vector<ProgramForecast> forecast(const exe::Executable& executable, const Rates& rates) {
  const TrafficCounter traffic(executable);
  Forecaster forecaster(executable, rates);
  std::vector<ProgramForecast> result;
  for (const exe::Program& p : executable.programs)
    result.push_back(forecaster.run(p, traffic.of(p)));
  return result;
}

std::string summary(const std::vector<ProgramForecast>& programs) {
  std::string text;
  for (const ProgramForecast& p : programs) {
    text += fmt::format("a run of '{}' takes {:.3f} ms\n", p.program, p.seconds * 1e3);
    for (const TransferForecast& t : p.transfers) {
      text += fmt::format(
          "  {}: {} bytes in {:.3f} ms, {:.3f} ms of it hidden by kernels, {:.3f} ms "
          "exposed\n",
          t.memory, grouped(t.bytes), t.seconds * 1e3, t.hidden_seconds() * 1e3,
          t.exposed_seconds * 1e3);
    }
  }
  return text;
}

}  // namespace sluice::report
