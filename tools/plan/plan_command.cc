#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <set>

#include "sluice/base/sys.h"
#include "sluice/check/checker.h"
#include "sluice/compiler/compile.h"
#include "sluice/cpu/simd/isa.h"
#include "sluice/data/files/contents.h"
#include "sluice/exe/text.h"
#include "sluice/ir/ir.h"
#include "sluice/planner/csv.h"
#include "sluice/planner/solve.h"
#include "sluice/report/forecast/forecast.h"
#include "sluice/report/plan_report.h"
#include "sluice/report/traffic.h"
#include "sluice/runtime/loaded_program.h"
#include "sluice/train/options/option_table.h"
#include "tools/call_results.h"
#include "tools/devices.h"
#include "tools/json_record.h"
#include "tools/machine/rates.h"
#include "tools/plan/pipeline_text.h"
#include "tools/plan/plan_advice.h"
#include "tools/plan/plan_json.h"
#include "tools/plan/profile.h"
#include "tools/plan/sweep.h"
#include "tools/programs.h"
#include "tools/run/checkpoints.h"

namespace sluice::tool {
namespace {

std::string read_text(const std::string& path) {
  const auto bytes = data::read_contents(path, Contents::kText, "text");
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

// Solves the problem of a file. A problem that contradicts itself is Error{kBadFile} naming the
// lines: buffer i is in line i + 2.
planner::Solution solve_file(const planner::Problem& problem, const std::string& path,
                             const planner::SolveOptions& options) {
  try {
    return planner::solve(problem, options);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::kUsage) throw;
    const std::string text = e.what();
    std::vector<std::string> lines;
    for (size_t i = 0; i < problem.buffers.size(); ++i) {
      const std::string name = fmt::format("'{}'", problem.buffers[i].name);
      if (text.find(name) != text.npos) lines.push_back(std::to_string(i + 2));
    }
    if (lines.empty()) lines = {"2", std::to_string(problem.buffers.size() + 1)};
    fail(ErrorKind::kBadFile, "{}: line {}: {}", path, fmt::join(lines, ", "), text);
  }
}

int solve_problem(const ToolOptions& o) {
  planner::Problem problem = planner::parse_csv(read_text(o.plan.problem), o.plan.problem);
  if (o.plan.capacity >= 0) problem.capacity = o.plan.capacity;
  const int64_t nodes = o.plan.nodes.value_or(planner::kLongSearchNodes);
  const planner::Solution solution =
      solve_file(problem, o.plan.problem, {.exact_nodes = nodes, .exact_looks_per_pair = nodes});
  if (o.output.json) {
    JsonRecord record;
    record.add("height", solution.height);
    record.add("bound", solution.bound);
    record.add("lower_bound", solution.lower_bound);
    record.add("exact_nodes", solution.exact_nodes);
    fmt::print("{}\n", record.text());
    return 0;
  }
  fmt::print("{}", planner::to_csv(problem, &solution));
  sys::print_stderr("{} buffers, height {}, live-set bound {}, {}\n", problem.buffers.size(),
                    solution.height, solution.bound,
                    solution.optimal ? "no plan is lower"
                                     : fmt::format("no plan is below {}", solution.lower_bound));
  return 0;
}

// Errors with which the devices of a plan refuse it. A device of another kind is named on stderr
// and passed over.
std::vector<std::string> refusals_of_devices(const exe::Executable& executable) {
  const std::shared_ptr<runtime::Device> cpu = cpu_device().device;
  Ids<exe::DeviceId, runtime::Device*> devices;
  std::vector<std::string> refusals;
  for (const exe::Device& d : executable.devices) {
    const bool known = d.kind == cpu->kind();
    devices.push_back(known ? cpu.get() : nullptr);
    try {
      if (known) cpu::isa_from_name(d.isa);
    } catch (const Error& e) {
      refusals.push_back(fmt::format("device {}: {}", devices.size() - 1, e.what()));
    }
    if (!known)
      sys::print_stderr("device {}: its kernels are not checked; its kind must be {}, got {}\n",
                        devices.size() - 1, cpu->kind(), d.kind);
  }
  for (std::string& refusal : runtime::refused_steps(executable, devices))
    refusals.push_back(std::move(refusal));
  return refusals;
}

int check_text(const ToolOptions& o) {
  const exe::Executable executable = exe::parse_text(read_text(o.plan.check), o.plan.check);
  std::vector<check::Violation> violations = check::violations(executable);
  if (violations.empty()) {
    for (std::string& refusal : refusals_of_devices(executable))
      violations.push_back({"kernel", std::move(refusal)});
  }
  for (const check::Violation& v : violations) fmt::print("[{}] {}\n", v.rule, v.message);
  if (violations.empty())
    fmt::print("proved: {} programs, {} functions\n", executable.programs.size(),
               executable.functions.size());
  return violations.empty() ? 0 : static_cast<int>(ErrorKind::kBadFile);
}

// Adds the transfers of a training step.
void add_transfers(const report::PlanReport& report, JsonRecord& record) {
  int64_t transfers = 0, on_io = 0, stream_bytes = 0, tier_bytes = 0;
  for (const report::TransferReport& t : report.transfers) {
    if (t.program != "train") continue;
    transfers += t.loads + t.stores;
    if (t.queue != "compute") on_io += t.loads + t.stores;
    (t.memory == "streams" ? stream_bytes : tier_bytes) += t.loaded_bytes + t.stored_bytes;
  }
  record.add("transfers", transfers);
  record.add("io_queue_transfers", on_io);
  record.add("stream_bytes", stream_bytes);
  record.add("tier_bytes", tier_bytes);
}

// Returns the bytes of the optimizer's state and of averages that an update loads and stores on
// each replica; 0 if they stay on the device.
int64_t state_bytes_per_update(const train::Training& training, const exe::Executable& e) {
  std::set<std::string> paths;
  for (const nn::NamedTensors* tree : {&training.state, &training.averages}) {
    tree->for_each([&](const std::string&, const Tensor& t) {
      paths.insert(t.graph().info(t).variable->path);
    });
  }
  std::set<int32_t> buffers;
  for (const exe::VariablePlan& v : e.variables) {
    if (v.buffer >= 0 && paths.contains(v.path)) buffers.insert(v.buffer);
  }
  int64_t bytes = 0;
  for (const report::Traffic& t : report::TrafficCounter(e).of(e.program("train"))) {
    const bool remote =
        t.kind == exe::TransferKind::kRemoteLoad || t.kind == exe::TransferKind::kRemoteStore;
    if (remote && buffers.contains(t.object)) bytes += t.bytes;
  }
  return bytes / training.device_iterations;
}

report::PlanReport report_of(const Compiled& compiled, const ToolOptions& o) {
  report::PlanReport report = report::plan_report(compiled.executable);
  report.phased = o.phased();
  report.host_buffers = host_buffers(o, compiled.executable);
  return report;
}

// A compiled model. One that fits its budgets is proved.
struct Plan {
  Plan(Programs built, const ToolOptions& o, const report::Rates& rates)
      : programs(std::move(built)),
        compiled(*programs.compiled),
        report(report_of(compiled, o)),
        forecasts(report::forecast(compiled.executable, rates)) {
    if (programs.offload.fits) check::prove(compiled.executable);
  }

  Programs programs;
  const Compiled& compiled;
  report::PlanReport report;
  std::vector<report::ProgramForecast> forecasts;

  const report::ProgramForecast& step_forecast() const {
    return *std::find_if(forecasts.begin(), forecasts.end(),
                         [](const auto& p) { return p.program == "train"; });
  }
};

// Adds the forecast of a training step.
void add_forecast(const report::ProgramForecast& step, JsonRecord& record) {
  double seconds = 0, exposed = 0;
  for (const report::TransferForecast& t : step.transfers) {
    if (t.memory == "streams") continue;
    seconds += t.seconds;
    exposed += t.exposed_seconds;
  }
  record.add("predicted_seconds", step.seconds);
  record.add("transfer_seconds", seconds);
  record.add("exposed_transfer_seconds", exposed);
}

std::string json_of(const Plan& plan, const ToolOptions& o,
                    std::vector<report::Suggestion> suggestions = {}) {
  const exe::Executable& executable = plan.compiled.executable;
  JsonRecord record;
  record.add("model", o.model.name);
  record.add("replicas", o.step.replicas);
  if (!o.device_ids.empty()) record.add("devices", device_ids_text(o));
  record.add("shard_threshold",
             train::options_table().find("locations.min_elements_sharded").print(o.step));
  add_offload(plan.programs, record);
  add_reductions(plan.programs.training, record);
  record.add("result_bytes", result_bytes(plan.programs));
  add_transfers(plan.report, record);
  record.add("planned_bytes",
             exe::planned_bytes(executable, exe::DeviceId(0), exe::Space::kDevice));
  // If there are several devices, this is device 0; "memories" has all.
  for (const exe::MemoryNeeds& m : plan.report.memories) {
    if (m.device > 0) continue;
    const std::string name = m.name.starts_with("tier ") ? m.name.substr(5) : "device";
    record.add("peak_bytes." + name, m.total_bytes);
    record.add("smallest_budget." + name, m.smallest_budget());
  }
  record.add("state_bytes_per_update", state_bytes_per_update(plan.programs.training, executable));
  if (plan.programs.training.pipeline) add_pipeline(plan.programs.training, executable, record);
  add_forecast(plan.step_forecast(), record);
  add_throttle(o, record);
  record.add("compile_seconds", plan.compiled.seconds);
  record.add("functions", static_cast<int64_t>(executable.functions.size()));
  add_plan(plan.report, {.forecasts = plan.forecasts, .suggestions = std::move(suggestions)},
           record);
  return record.text();
}

std::vector<report::Suggestion> suggestions_for(const Plan& plan, const ToolOptions& o) {
  return suggestions(o, plan.programs, plan.report);
}

void print_plan(const Plan& plan, const ToolOptions& o, const std::string& machine) {
  report::Outlook outlook{
      .forecasts = plan.forecasts, .machine = machine, .suggestions = suggestions_for(plan, o)};
  if (plan.programs.training.pipeline)
    outlook.stages = pipeline_lines(plan.programs.training, plan.compiled.executable);
  if (const std::string ids = device_ids_text(o); !ids.empty()) outlook.stages.push_back(ids);
  if (const std::string text = reductions_text(plan.programs.training); !text.empty())
    outlook.stages.push_back(text);
  if (const std::string text = results_text(plan.programs); !text.empty())
    outlook.stages.push_back(text);
  if (plan.programs.offload.fits) {
    outlook.offload = offload_line(plan.programs);
    outlook.offload.pop_back();
    outlook.closing =
        fmt::format("compiled in {:.3f} s; the plan is proved", plan.compiled.seconds);
  }
  fmt::print("{}", report::summary(plan.report, outlook));
}

// Prints a plan with the budgets that it exceeds. The caller throws the refusal, which no error may
// replace.
void print_refused(const Programs& programs, const ToolOptions& o,
                   const MachineRates& machine) noexcept {
  try {
    print_plan(Plan(programs, o, machine.rates), o, machine.text);
  } catch (const std::exception&) {
    return;
  }
}

// The plan; prints one before it throws the error of a budget that is too small.
Plan make_plan(const ToolOptions& o, const MachineRates& machine) {
  try {
    return Plan(build_programs(o), o, machine.rates);
  } catch (const RefusedPrograms& e) {
    const bool shows = o.plan.view == PlanOptions::View::kSummary && !o.output.json;
    if (shows) print_refused(*e.programs(), o, machine);
    throw;
  }
}

}  // namespace

SweepFigures figures_of(const ToolOptions& o) {
  const Plan plan(build_programs(o), o, measure_rates(o).rates);
  const exe::Executable& e = plan.compiled.executable;
  SweepFigures f{.state_bytes = state_bytes_per_update(plan.programs.training, e),
                 .seconds = plan.step_forecast().seconds};
  for (const exe::MemoryNeeds& m : plan.report.memories) {
    if (m.device >= 0) f.device_bytes = std::max(f.device_bytes, m.total_bytes);
    f.tier_bytes += m.tier_bytes;
  }
  const report::TrafficCounter traffic(e);
  for (const exe::Program& p : e.programs) {
    if (p.name != plan.step_forecast().program) continue;
    for (const report::Traffic& t : traffic.of(p)) {
      const bool stream =
          t.kind == exe::TransferKind::kStreamIn || t.kind == exe::TransferKind::kStreamOut;
      if (!stream) f.remote_bytes += e.replicas * t.bytes;
    }
    for (const report::CollectiveBytes& c : traffic.collectives_of(p))
      f.collective_bytes += e.replicas * c.sent_bytes();
    for (const report::Messages& m : traffic.messages_of(p))
      f.message_bytes += e.replicas * m.bytes;
  }
  return f;
}

int run_plan(const ToolOptions& o) {
  if (!o.plan.problem.empty()) return solve_problem(o);
  if (!o.plan.check.empty()) return check_text(o);
  const MachineRates machine = measure_rates(o);
  const Plan plan = make_plan(o, machine);
  check_host_buffers(o, plan.compiled.executable);
  if (!o.profile.folder.empty())
    write_profile(o, plan.programs, plan.compiled.executable, suggestions_for(plan, o));
  if (o.output.json) {
    fmt::print("{}\n", json_of(plan, o, suggestions_for(plan, o)));
    return 0;
  }
  using View = PlanOptions::View;
  switch (o.plan.view) {
    case View::kSummary:
      print_plan(plan, o, machine.text);
      break;
    case View::kFull:
      fmt::print("{}", exe::to_text(plan.compiled.executable));
      break;
    case View::kPasses:
      fmt::print("{}", passes_text(plan.compiled));
      break;
    case View::kFusions:
      fmt::print("{}", fusions_text(plan.compiled));
      break;
    case View::kMemoryMap:
      fmt::print("{}\n", report::memory_map(plan.report));
      break;
    case View::kTransfers:
      fmt::print("{}predicted with {}:\n{}\n", throttle_line(o), machine.text,
                 report::summary(plan.forecasts));
      break;
    case View::kScheduleTable:
      fmt::print("{}", schedule_text(plan.programs.training));
      break;
    case View::kDot:
      fmt::print("{}", to_dot(plan.programs.ir));
      break;
  }
  return 0;
}

}  // namespace sluice::tool
