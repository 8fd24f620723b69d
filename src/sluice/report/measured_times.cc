#include "sluice/report/measured_times.h"

#include <algorithm>
#include <map>
#include <utility>

#include "sluice/exe/call_order.h"
#include "sluice/exe/visit_step.h"

namespace sluice::report {
namespace {

using FunctionStep = std::pair<exe::FunctionId, int32_t>;  // Function and step.
using Intervals = std::vector<std::pair<double, double>>;

// Joins intervals that touch. The result ascends.
Intervals joined(Intervals all) {
  std::sort(all.begin(), all.end());
  Intervals result;
  for (const auto& [begin, end] : all) {
    if (!result.empty() && begin <= result.back().second) {
      result.back().second = std::max(result.back().second, end);
    } else {
      result.emplace_back(begin, end);
    }
  }
  return result;
}

// Returns the time in [begin, end) that is in one of ascending intervals.
double covered(const Intervals& busy, double begin, double end) {
  double sum = 0;
  for (auto at = std::partition_point(busy.begin(), busy.end(),
                                      [&](const auto& i) { return i.second <= begin; });
       at != busy.end() && at->first < end; ++at)
    sum += std::min(at->second, end) - std::max(at->first, begin);
  return sum;
}

// Sets `min` to the smaller of two times that were measured; a negative time was not.
void take_minimum(double& min, double other) {
  if (min < 0 || (other >= 0 && other < min)) min = other;
}
void take_maximum(double& max, double other) { max = std::max(max, other); }

// The kernels that take longest first: by their measured times where there are some.
void sort_kernels(std::vector<KernelTime>& kernels) {
  std::stable_sort(kernels.begin(), kernels.end(), [](const KernelTime& a, const KernelTime& b) {
    return a.measured != b.measured ? a.measured > b.measured : a.forecast > b.forecast;
  });
}

const StepReport& step_of(const Report& report, const KernelTime& k) {
  return at(report.functions[k.function].steps, k.step);
}

}  // namespace

bool is_reference(const StepReport& step) { return exe::is_reference_kernel(step.kernel); }

void add_times(const exe::Executable& e, MeasuredRun& run) {
  struct Sum {
    double seconds = 0;
    int64_t events = 0;
  };
  std::map<FunctionStep, Sum> sums;
  Ids<exe::DeviceId, Intervals> computes(e.devices.size());
  std::vector<std::pair<exe::DeviceId, std::pair<double, double>>> transfers;
  run.devices.clear();
  for (const exe::DeviceId d : e.devices.ids()) run.devices.push_back({d, 0, 0, 0});
  for (const Event& event : run.trace.events) {
    const double seconds = event.end - event.begin;
    if (event.kind == Event::Activity::kWait) {
      run.devices[event.device].waits += seconds / std::max(1, e.devices[event.device].workers);
      continue;
    }
    const exe::Step& step = at(e.functions[event.function].steps, event.step);
    if (const auto* issue = std::get_if<exe::Issue>(&step.body)) {
      if (event.queue != issue->queue) continue;  // It only hands the transfer to its queue.
      transfers.emplace_back(event.device, std::pair(event.begin, event.end));
    } else if (std::holds_alternative<exe::Kernel>(step.body) ||
               std::holds_alternative<exe::Collective>(step.body)) {
      computes[event.device].emplace_back(event.begin, event.end);
    }
    Sum& sum = sums[{event.function, event.step}];
    sum.seconds += seconds;
    ++sum.events;
  }
  for (Intervals& busy : computes) busy = joined(std::move(busy));
  for (const auto& [device, span] : transfers) {
    DeviceWaits& of_device = run.devices[device];
    const double seconds = span.second - span.first;
    of_device.transfers += seconds;
    of_device.exposed += seconds - covered(computes[device], span.first, span.second);
  }
  run.steps.clear();
  for (const auto& [at, sum] : sums)
    run.steps.push_back({at.first, at.second, sum.seconds / static_cast<double>(sum.events)});
  run.seconds = run.trace.complete ? run.trace.seconds : -1;
  if (run.trace.complete) return;
  run.devices.clear();  // Their sums would lack the lost events.
}

void merge_runs(std::vector<MeasuredRun>& earlier, std::vector<MeasuredRun> later) {
  for (MeasuredRun& run : later) {
    const auto found = std::find_if(earlier.begin(), earlier.end(), [&](const MeasuredRun& m) {
      return m.program == run.program && m.replica == run.replica;
    });
    if (found == earlier.end()) {
      earlier.push_back(std::move(run));
      continue;
    }
    run.runs += found->runs;
    take_minimum(run.seconds, found->seconds);
    std::map<FunctionStep, StepTime> steps;
    for (const auto* times : {&found->steps, &run.steps}) {
      for (const StepTime& s : *times)
        take_minimum(steps.try_emplace({s.function, s.step}, s).first->second.seconds, s.seconds);
    }
    run.steps.clear();
    for (const auto& [at, time] : steps) run.steps.push_back(time);
    if (run.devices.empty()) run.devices = found->devices;
    for (const exe::DeviceId d : run.devices.ids()) {
      if (!found->devices.contains(d)) break;
      take_minimum(run.devices[d].waits, found->devices[d].waits);
      take_minimum(run.devices[d].transfers, found->devices[d].transfers);
      take_minimum(run.devices[d].exposed, found->devices[d].exposed);
    }
    *found = std::move(run);
  }
}

void add_kernels(const exe::Executable& e, const exe::Program& program, const Report& report,
                 ProgramReport& out) {
  Ids<exe::FunctionId, int64_t> runs(e.functions.size());
  for (const exe::Start& start : program.starts) ++runs[start.function];
  std::vector<exe::FunctionId> order = exe::callees_first(e);
  std::reverse(order.begin(), order.end());
  for (const exe::DeviceId d : e.devices.ids()) out.devices.push_back({.device = d});
  for (const exe::FunctionId f : order) {
    if (runs[f] == 0) continue;
    const FunctionTimeline& timeline = report.functions[f];
    DeviceTimes& device = out.devices[timeline.device];
    for (size_t s = 0; s < timeline.steps.size(); ++s) {
      const StepReport& step = timeline.steps[s];
      for (const exe::FunctionId callee : step.calls) {
        int64_t& called = runs[callee];
        called = bounded_sum(called, bounded_product(runs[f], step.trips));
      }
      if (step.kind != "kernel") continue;
      const double seconds = step.seconds * static_cast<double>(runs[f]);
      out.kernels.push_back({f, static_cast<int32_t>(s), runs[f], seconds});
      device.kernels = bounded_sum(device.kernels, runs[f]);
      device.forecast += seconds;
      if (is_reference(step)) device.reference += seconds;
    }
  }
  sort_kernels(out.kernels);
}

void add_measured(std::vector<MeasuredRun> runs, Report& report) {
  for (ProgramReport& p : report.programs) {
    std::map<FunctionStep, double> means;
    bool lost = false;
    for (const MeasuredRun& run : runs) {
      if (run.program != p.name) continue;
      p.measured_runs = std::max(p.measured_runs, run.runs);
      lost = lost || run.seconds < 0;
      take_maximum(p.measured_seconds, run.seconds);
      for (const StepTime& s : run.steps)
        take_maximum(means.try_emplace({s.function, s.step}, 0).first->second, s.seconds);
      for (const DeviceWaits& w : run.devices) {
        DeviceTimes& device = p.devices[w.device];
        take_maximum(device.waits, w.waits);
        if (w.exposed >= device.exposed) {
          device.exposed = w.exposed;
          device.transfers = w.transfers;
        }
      }
    }
    if (p.measured_runs == 0) continue;
    if (lost) p.measured_seconds = -1;
    for (DeviceTimes& device : p.devices) device.measured = device.reference = 0;
    for (KernelTime& k : p.kernels) {
      const auto mean = means.find({k.function, k.step});
      if (mean == means.end()) continue;
      k.measured = mean->second * static_cast<double>(k.runs);
      DeviceTimes& times = p.devices[report.functions[k.function].device];
      times.measured += k.measured;
      if (is_reference(step_of(report, k))) times.reference += k.measured;
    }
    sort_kernels(p.kernels);
  }
  report.measured = std::move(runs);
}

}  // namespace sluice::report
