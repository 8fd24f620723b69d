#include <fmt/format.h>

#include "sluice/planner/solve.h"
#include "tools/flags/flag_table.h"

namespace sluice::tool {
namespace {

constexpr auto of_output(auto member) { return member_path(&ToolOptions::output, member); }
constexpr auto of_plan(auto member) { return member_path(&ToolOptions::plan, member); }
constexpr auto of_bench(auto member) { return member_path(&ToolOptions::bench, member); }

void add_json(FlagTable& table, unsigned commands) {
  Section s(table, commands, "Output", Common::kYes);
  s.add("json", of_output(&OutputOptions::json), forms::flags(),
        "Print the results as one JSON object");
  s.last().in_sweep = InSweep::kAllowed;
}

void add_run(FlagTable& table) {
  constexpr unsigned kRuns = kTrain | kEval | kPredict;
  add_json(table, kRuns | kGenerate);
  Section(table, kRuns, "Output", Common::kYes)
      .add_setter("quiet", of_output(&OutputOptions::log_level), LogLevel::kError,
                  "Report errors and results alone");
  Section(table, kRuns, "Output", Common::kNo)
      .add("log_level", of_output(&OutputOptions::log_level),
           forms::words<LogLevel>({{"error", LogLevel::kError},
                                   {"info", LogLevel::kInfo},
                                   {"debug", LogLevel::kDebug}}),
           "Report errors alone, progress (info) too, or also passes and memory (debug)");
  Section(table, kTrain | kEval, "Output", Common::kYes)
      .add("digest", of_output(&OutputOptions::digest), forms::flags(),
           "Print a digest of the losses and variables");
  Section profile(table, kWithModel, "Output", Common::kNo);
  constexpr auto kFolder = member_path(&ToolOptions::profile, &ProfileOptions::folder);
  profile
      .add("profile", kFolder, forms::texts("DIR"),
           "Write report.html, report.json and trace.json to DIR/training, or DIR/inference for "
           "eval and predict; --profile=DIR (default of DIR: ./profile). All but plan read DIR "
           "from $SLUICE_PROFILE too")
      .placeholder = "";
  profile.last().implied = kUsualProfileFolder;
  profile.last().in_sweep = InSweep::kRefused;
  profile.add("profile_dir", kFolder, forms::texts("DIR"),
              "Write them as --profile=DIR does, with --profile or without");
  profile.last().in_sweep = InSweep::kRefused;
}

// The flags that choose what `sluice plan` prints.
void add_views(FlagTable& table) {
  using View = PlanOptions::View;
  add_json(table, kPlan);
  Section s(table, kPlan, "Output", Common::kYes);
  const auto add = [&](const char* name, View view, const char* help) -> auto& {
    Option<ToolOptions>& option = s.add_setter(name, of_plan(&PlanOptions::view), view, help);
    s.last().in_sweep = InSweep::kRefused;
    return option;
  };
  add("full", View::kFull, "Print the whole executable");
  add("passes", View::kPasses, "Print the compiler's passes with their times and changes");
  add("fusions", View::kFusions, "Print which operators share a kernel, and why others do not");
  add("memory_map", View::kMemoryMap,
      "Print the bytes of every memory by kind and name, and of every function");
  add("transfers", View::kTransfers, "Print every transfer with its bytes and forecast time");
  add("schedule_table", View::kScheduleTable,
      "Print when each stage runs each micro-batch of a pipeline")
      .require({"{step.strategy} pipelined or sharded",
                [](const ToolOptions& o) { return o.staged() && !o.phased(); }});
  add("dot", View::kDot, "Print the graphs for Graphviz");
}

void add_plan(FlagTable& table) {
  add_views(table);
  Section s(table, kPlan, "Output", Common::kYes);
  s.add_list("sweep", of_plan(&PlanOptions::sweeps), "VALUES",
             "Print a row for each combination of values: --sweep 'micro-batch=8;16'");
  s.last().splits = false;
  s.last().in_sweep = InSweep::kAllowed;
  Section rare(table, kPlan, "Output", Common::kNo);
  rare.add("sort", of_plan(&PlanOptions::sort), forms::texts("COLUMN"),
           "Sort these rows, for example by seconds")
      .require({"{sweep}", [](const ToolOptions& o) { return !o.plan.sweeps.empty(); }});
  rare.last().in_sweep = InSweep::kAllowed;
  const Requirement<ToolOptions> problem{
      "{problem}", [](const ToolOptions& o) { return !o.plan.problem.empty(); }};
  const auto suite = [&](Common common, auto&&... option) -> auto& {
    Section group(table, kPlan, kSuiteGroup, common);
    Option<ToolOptions>& added = group.add(option...);
    group.last().in_sweep = InSweep::kRefused;
    return added;
  };
  suite(Common::kYes, "problem", of_plan(&PlanOptions::problem), forms::texts("FILE"),
        "Solve an allocation problem (CSV: id,lower,upper,size)");
  suite(Common::kYes, "capacity", of_plan(&PlanOptions::capacity),
        forms::or_word<int64_t>("none", -1, forms::bytes()), "Limit the problem to BYTES")
      .require(problem)
      .defaults_to("the file's");
  suite(Common::kYes, "check", of_plan(&PlanOptions::check), forms::texts("FILE"),
        "Prove the plan that --full printed to FILE");
  suite(Common::kNo, "nodes", of_plan(&PlanOptions::nodes), forms::integers<int64_t>(1),
        "Stop the exact search of the problem after N nodes")
      .require(problem)
      .defaults_to(fmt::format("{}, about 30 s", planner::kLongSearchNodes));
}

void add_suite(FlagTable& table) {
  add_json(table, kBench);
  Section s(table, kBench, kSuiteGroup, Common::kYes);
  s.add("only", of_bench(&BenchOptions::only), forms::texts("TEXT"),
        "Run the cases whose name contains TEXT")
      .defaults_to("all");
  s.add("rounds", of_bench(&BenchOptions::rounds), forms::integers<int>(1, 1000000),
        "Report the median of N rounds");
  s.add("dataset", member_path(&ToolOptions::model, &ModelOptions::dataset), forms::texts("FILE"),
        "Measure how fast csv:FILE, npz:FILE, safetensors:FILE, text:FILE (windows of 64 "
        "characters) or idx:DIR is read");
  const Requirement<ToolOptions> dataset{
      "{dataset}", [](const ToolOptions& o) { return !o.model.dataset.empty(); }};
  s.add("epochs", of_bench(&BenchOptions::epochs), forms::integers<int64_t>(1, 1000000),
        "Read the dataset in N parts that are measured one by one")
      .require(dataset)
      .defaults_to("1");
  s.add("elements", of_bench(&BenchOptions::elements), forms::integers<int64_t>(1),
        "Read N elements in each part")
      .require(dataset)
      .defaults_to("1000");
  s.add("repeat", of_bench(&BenchOptions::repeat), forms::flags(),
        "Read the dataset again and again")
      .require(dataset);
  s.add_list("python", of_bench(&BenchOptions::python), "PROGRAM",
             "Measure PyTorch of this Python too");
}

void add_files(FlagTable& table) {
  Section file(table, kInspect, "File", Common::kYes);
  file.add(
          "file", &ToolOptions::file, forms::texts("FILE"),
          "Describe this IDX[.gz], safetensors, plan or report.json file, or folder of checkpoints")
      .named("file");
  file.last().required = true;
  file.add("other", &ToolOptions::other, forms::texts("FILE"), "Compare it with this report.json")
      .named("other");
  Section doctor(table, kDoctor, "Model", Common::kYes);
  doctor
      .add("data", member_path(&ToolOptions::model, &ModelOptions::data), forms::texts("DIR"),
           "Search for the samples in DIR")
      .defaults_to("$SLUICE_DATA, data/mnist");
  doctor.add("measure", &ToolOptions::measure, forms::texts("FILE"),
             "Write the measured rates of this machine to FILE, for --machine; checks nothing");
}

}  // namespace

void add_output_flags(FlagTable& table) {
  add_run(table);
  add_plan(table);
  add_suite(table);
  add_files(table);
  Section processes(table, kWithModel | kInspect | kDoctor, "Processes", Common::kNo);
  processes
      .add({"single_process", OptionType::kFlag, "",
            "Run each process by itself, although a launcher started several",
            [](const ToolOptions&) { return std::string("join them"); },
            [](ToolOptions&, const OptionTexts&) {}})  // main() reads it before it joins a group.
      .defaults_to("join them");
  processes.last().in_sweep = InSweep::kAllowed;
}

}  // namespace sluice::tool
