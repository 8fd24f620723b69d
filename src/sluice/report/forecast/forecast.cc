#include "sluice/report/forecast/forecast.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "sluice/exe/visit_step.h"
#include "sluice/report/forecast/step_times.h"
#include "sluice/report/plan_report.h"
#include "sluice/report/traffic.h"

namespace sluice::report {
namespace {

constexpr int64_t kMaxIterations =
    32;  // Simulated iterations; later ones take as long as the last one.

/// State of a device in the simulation. All times are in seconds.
struct State {
  double now = 0;            // Time that the compute queue has reached.
  std::vector<double> busy;  // Time until which each queue is busy; remote memory last.
  std::vector<double> took;  // Time of transfers, by memory.
  std::vector<double> waited;
};

/// Returns the times that one iteration or call adds. Valid if all queues are idle before and after
/// it.
State operator-(State after, const State& before) {
  after.now -= before.now;
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
  for (double& until : s.busy) until += times * iteration.now;
  for (size_t i = 0; i < s.took.size(); ++i) {
    s.took[i] += times * iteration.took[i];
    s.waited[i] += times * iteration.waited[i];
  }
}

class Forecaster {
 public:
  Forecaster(const exe::Executable& e, const Rates& rates)
      : e_(e), times_(e, rates), idle_iterations_(e.functions.size()) {}

  ProgramForecast run(const exe::Program& program, const std::vector<Traffic>& traffic) {
    ProgramForecast out{program.name, 0, {}};
    std::vector<TransferForecast> all;
    for (int m = 0; m < times_.memories(); ++m) all.push_back({times_.name_of_memory(m)});
    for (const Traffic& t : traffic) {
      int64_t& bytes = at(all, times_.memory_of(t.kind, t.object)).bytes;
      bytes = bounded_sum(bytes, bounded_product(e_.replicas, t.bytes));
    }
    double shared = 0;  // Sum over the devices that the workers run one after another.
    for (const exe::Start& start : program.starts) {
      State s;
      s.busy.resize(e_.devices[start.device].queues.size() + 1);
      s.took.resize(all.size());
      s.waited.resize(all.size());
      walk(start.function, s);
      if (!e_.devices[start.device].queued) shared += s.now;
      out.seconds = std::max({out.seconds, s.now, shared});
      for (size_t m = 0; m < all.size(); ++m) {
        all[m].seconds += s.took[m];
        all[m].exposed_seconds += s.waited[m];
      }
    }
    for (const TransferForecast& t : all) {
      if (t.bytes > 0) out.transfers.push_back(t);
    }
    return out;
  }

 private:
  void walk(exe::FunctionId f, State& s) {
    const bool idle = is_idle(s);
    if (idle && idle_iterations_[f]) return add_iterations(*idle_iterations_[f], 1, s);
    const State before = s;
    struct Flying {
      int32_t token;
      int memory;
      double end;
    };
    std::vector<Flying> flying;
    const std::vector<exe::Step>& steps = e_.functions[f].steps;
    for (size_t i = 0; i < steps.size(); ++i) {
      const double seconds = times_.seconds(f, i);
      if (const auto* issue = std::get_if<exe::Issue>(&steps[i].body)) {
        const int memory = times_.memory_of(issue->kind, issue->object);
        const double end = transfer(*issue, memory, seconds, s);
        if (issue->queue != 0) flying.push_back({issue->token, memory, end});
      } else if (const auto* wait = std::get_if<exe::Wait>(&steps[i].body)) {
        std::erase_if(flying, [&](const Flying& t) {
          if (t.token == wait->token) await(t.memory, t.end, s);
          return t.token == wait->token;
        });
      } else if (const auto* loop = std::get_if<exe::Loop>(&steps[i].body)) {
        repeat(*loop, s);
      } else if (const auto* branch = std::get_if<exe::Branch>(&steps[i].body)) {
        State other = s;
        walk(branch->then_call.function, s);
        walk(branch->else_call.function, other);
        if (other.now > s.now) s = std::move(other);
      } else if (const auto* call = std::get_if<exe::Call>(&steps[i].body)) {
        walk(call->function, s);
      } else {
        s.now += seconds;
      }
    }
    if (idle && is_idle(s)) idle_iterations_[f] = s - before;
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
};

}  // namespace

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
