#include "tools/command_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/base/sys.h"
#include "sluice/cpu/simd/isa.h"
#include "sluice/planner/solve.h"
#include "tools/aliases.h"
#include "tools/check_needs.h"
#include "tools/data/data_flags.h"
#include "tools/devices.h"
#include "tools/flags/flags.h"
#include "tools/flags/machine_flags.h"
#include "tools/flags/model_flags.h"
#include "tools/flags/training_flags.h"
#include "tools/machine/measure.h"
#include "tools/options.h"
#include "tools/plan/profile.h"
#include "tools/plan/sweep.h"
#include "tools/programs.h"

namespace sluice::tool {
namespace {

void add_json(Flags& flags, ToolOptions& o) {
  flags.flag("--json", "Print the results as one JSON object", [&o] { o.output.json = true; });
}

// Options of commands that run the model on samples.
void add_run(Flags flags, ToolOptions& o) {
  add_json(flags.group(kOutputGroup), o);
  flags.flag("--quiet", "Report errors and results alone",
             [&o] { o.output.log_level = LogLevel::kError; });
  flags.group(kOutputGroup, Common::kNo)
      .choice(
          "--log-level", o.output.log_level,
          {{"error", LogLevel::kError}, {"info", LogLevel::kInfo}, {"debug", LogLevel::kDebug}},
          {"Report errors alone, progress (info) too, or also passes and memory (debug)", "info"});
}

void add_digest(Flags flags, ToolOptions& o) {
  flags.group(kOutputGroup).flag("--digest", "Print a digest of the losses and variables", [&o] {
    o.output.digest = true;
  });
}

// A flag that chooses a form of the plan. Error{kUsage} for two of them.
void add_form(Flags& flags, PlanOptions& plan, const char* name, PlanOptions::Form form,
              const char* help) {
  flags.flag(name, help, [&plan, name, form] {
    require(plan.form == PlanOptions::Form::kSummary || plan.form == form,
            "{} cannot be combined with another form of the plan", name);
    plan.form = form;
  });
}

void add_machine(Flags flags, ToolOptions& o) {
  flags.group(kStrategyGroup, Common::kNo)
      .text("--machine", "FILE", o.machine,
            "Forecast, and balance stages, with the rates of FILE (sluice doctor --measure)");
}

void add_plan(Flags flags, ToolOptions& o) {
  using Form = PlanOptions::Form;
  add_json(flags.group(kOutputGroup), o);
  add_form(flags, o.plan, "--full", Form::kFull, "Print the whole executable");
  add_form(flags, o.plan, "--passes", Form::kPasses,
           "Print the compiler's passes with their times and changes");
  add_form(flags, o.plan, "--fusions", Form::kFusions,
           "Print which operators share a kernel, and why others do not");
  add_form(flags, o.plan, "--memory-map", Form::kMemoryMap,
           "Print the bytes of every memory by kind and holder, and of every function");
  add_form(flags, o.plan, "--transfers", Form::kTransfers,
           "Print every transfer with its bytes and forecast time");
  add_form(flags, o.plan, "--schedule-table", Form::kScheduleTable,
           "Print when each stage runs each micro-batch of a pipeline");
  add_form(flags, o.plan, "--dot", Form::kDot, "Print the graphs for Graphviz");
  flags.group(kCompilerGroup, Common::kNo)
      .text("--print-after", "PASS", o.session.print_after,
            "Print the program after this pass to stderr, or after all");
  flags.group(kOutputGroup)
      .repeated("--sweep", "VALUES",
                "Print a row for each combination of values: --sweep 'micro-batch=8;16'",
                o.plan.sweeps);
  flags.group(kOutputGroup, Common::kNo)
      .text("--sort", "COLUMN", o.plan.sort,
            "Sort these rows, such as by seconds; requires --sweep");
  flags.group(kSuiteGroup)
      .text("--problem", "FILE", o.plan.problem,
            "Solve an allocation problem (CSV: id,lower,upper,size)");
  flags.bytes("--capacity", o.plan.capacity,
              {"Limit the problem to BYTES; requires --problem", "the file's"});
  flags.text("--check", "FILE", o.plan.check, "Prove the plan that --full printed to FILE");
  flags.group(kSuiteGroup, Common::kNo);
  flags.integer<std::optional<int64_t>, int64_t>(
      "--nodes", o.plan.nodes, 1, kMost,
      {"Give the problem's exact search up after N looks; requires --problem",
       fmt::format("{}, about 30 s", planner::kLongSearchNodes)});
}

void add_suite(Flags flags, ToolOptions& o) {
  flags.group(kSuiteGroup)
      .text("--only", "TEXT", o.bench.only, {"Run the cases whose name contains TEXT", "all"});
  flags.integer<int, int>("--rounds", o.bench.rounds, 1, 1000000,
                          {"Report the median of N rounds", "5"});
  flags.text("--dataset", "FILE", o.model.dataset,
             "Measure how fast csv:FILE, npz:FILE, safetensors:FILE, text:FILE (windows of 64 "
             "characters) or idx:DIR is read");
  flags.integer<std::optional<int64_t>, int64_t>(
      "--epochs", o.bench.epochs, 1, 1000000,
      {"Read the dataset in N parts that are measured one by one", "1"});
  flags.integer<std::optional<int64_t>, int64_t>("--elements", o.bench.elements, 1, kMost,
                                                 {"Read N elements in each part", "1000"});
  flags.flag("--repeat", "Read the dataset again and again; requires --dataset",
             [&o] { o.bench.repeat = true; });
  flags.list("--python", "PROGRAM", {"Measure PyTorch of this Python too", "/usr/bin/python3"},
             [&o](const std::vector<std::string>& texts) { o.bench.python = texts; });
}

void add_processes(Flags flags) {
  flags.group(kProcessGroup, Common::kNo)
      .flag(kSingleProcess,
            {"Run each process by itself, although a launcher started several", "join them"},
            [] {});  // is_single_process() reads it before the process joins a group.
}

// The commands and their flags.
struct CommandLine {
  explicit CommandLine(ToolOptions& o);

  CLI::App app{
      "Trains and runs neural networks by a plan that is known to the byte before the first step."};
  CLI::App* train = command("train", "Train a model: sluice train mnist --memory 16M");
  CLI::App* eval = command("eval", "Test a model: sluice eval mnist --weights w.safetensors");
  CLI::App* predict = command(
      "predict",
      "Apply a model to your samples: sluice predict mlp --weights F --dataset csv:F --to F.npz");
  CLI::App* plan =
      command("plan", "Compile a model, prove its plan and show it: sluice plan mnist");
  CLI::App* bench =
      command("bench", "Time a model's steps, or the engine: sluice bench --only step");
  CLI::App* inspect = command("inspect", "Describe a file: sluice inspect w.safetensors");
  CLI::App* doctor = command("doctor", "Check that this machine computes right: sluice doctor");
  bool list = false;

  std::vector<CLI::App*> with_model() const { return {train, eval, predict, plan, bench}; }

 private:
  CLI::App* command(const char* name, const char* help) {
    CLI::App* const sub = app.add_subcommand(name, help);
    sub->formatter(std::make_shared<Help>());
    add_help(*sub);
    return sub;
  }
  static void add_help(CLI::App& app) {
    app.set_help_flag("--help", "Print the common options")->group("");
    app.set_help_all_flag("--help-all", "Print every option")->group("");
  }
};

CommandLine::CommandLine(ToolOptions& o) {
  app.name("sluice");
  app.formatter(std::make_shared<Help>());
  app.require_subcommand(0, 1);
  Flags general(app);
  general.group("Options").flag("--list", "Print the models", [this] { list = true; });
  app.set_version_flag(
         "--version",
         [] {
           return fmt::format("sluice {} ({})", SLUICE_VERSION, cpu::to_string(cpu::current_isa()));
         },
         "Print the version and the instruction set in use")
      ->group("Options");
  app.set_help_flag("--help", "Print this help, as -h does; after a command, its common options")
      ->group("Options");
  app.set_help_all_flag("--help-all", "Print every option of every command, or of one")
      ->group("Options");
  app.footer(
      "Exit codes: 0 success, 1 internal error, 2 usage, 3 bad file, 4 does not fit, "
      "5 input/output,\n6 diverged, 7 no checkpoint, 8 peer lost, 75 stopped and saved, "
      "128 + N stopped by signal N.\n\nRead on: docs/first_hour.md, docs/tour.md, docs/cli.md");

  train->footer(aliases_text());
  for (CLI::App* const command : with_model()) {
    const Flags flags(*command);
    add_model(flags, o);
    if (command != predict) add_dropout(flags, o);
    if (command == predict) {
      add_predict(flags, o);
      Flags batches(*command);
      batches.group(kModelGroup);
      add_replicas(batches, "Compute on N replicas, each on samples of its own", o);
      add_test_batch(batches, o);
    } else {
      if (command != bench) add_user_data(flags, o);
      if (command == train) add_standardize(flags, o);
      if (command == eval) add_test_all(flags, o);
      if (command == train || command == eval) add_samples(flags, o);
      add_step(flags, o);
    }
    const bool trains = command != eval && command != predict;
    if (trains) add_rate(flags, o);
    if (trains) add_device_iterations(flags, o);
    if (command == train || command == plan) add_output_mode(flags, o);
    add_memory(flags, o);
    add_strategy(flags, o);
    if (command != predict) add_gradients(flags, o);
    add_compiler(flags, o);
    if (command == train || command == eval || command == predict) add_run(flags, o);
    if (command == train || command == eval) add_digest(flags, o);
    add_profile(flags, kOutputGroup, o);
  }
  add_training(Flags(*train), o);
  add_plan(Flags(*plan), o);
  for (CLI::App* const command : {train, plan}) add_machine(Flags(*command), o);
  Flags timing(*bench);
  timing.group(kTrainingGroup);
  timing.integer<std::optional<int64_t>, int64_t>("--steps", o.train.steps, 1, kMost,
                                                  {"Time N steps", "500"});
  timing.flag("--synthetic", "Report the mean of 5 runs on ones, training and testing",
              [&o] { o.model.synthetic = true; });
  add_json(timing.group(kOutputGroup), o);
  add_suite(Flags(*bench), o);
  Flags(*inspect)
      .group("File")
      .text("file", "FILE", o.file, "Describe this IDX[.gz], safetensors, plan or report.json file")
      ->required();
  Flags(*inspect).group("File").text("other", "FILE", o.other, "Compare it with this report.json");
  Flags(*doctor)
      .group(kModelGroup)
      .text("--data", "DIR", o.model.data,
            {"Look for the samples in DIR", "$SLUICE_DATA, data/mnist"});
  Flags(*doctor)
      .group(kModelGroup)
      .text("--measure", "FILE", o.measure,
            "Write the measured rates of this machine to FILE, for --machine; checks nothing");
  for (CLI::App* const command : {train, eval, predict, plan, bench, inspect, doctor})
    add_processes(Flags(*command));
}

// Sets flags that the command line does not have to the model's own defaults.
void set_defaults(CLI::App& command, const ToolOptions& o) {
  for (const models::Default& d : model_defaults(o)) {
    CLI::Option* const option = command.get_option_no_throw(std::string(d.flag));
    if (option == nullptr || option->count() > 0) continue;
    option->run_callback_for_default()->default_val(std::string(d.text));
  }
}

// Shortens calls of several updates where --steps are not whole calls: to the largest number of
// updates that divides the steps. The bits do not depend on it.
void divide_steps(ToolOptions& o) {
  constexpr int64_t kMostIterations = 1'000'000;  // Limits the search.
  int64_t& iterations = o.step.device_iterations;
  const int64_t steps = o.train.steps.value_or(0), asked = iterations;
  if (steps % asked == 0) return;
  const int64_t period = o.step.output.value_or(train::Output::all()).period;
  iterations = std::min({asked, steps, kMostIterations});
  while (iterations > 0 && (steps % iterations != 0 || iterations % period != 0)) --iterations;
  require(iterations > 0,
          "--steps: must be a multiple of the N of --output-mode every:N, {}, got {}", period,
          steps);
  if (o.output.speaks() && !o.output.json)
    sys::print_stderr(
        "--device-iterations {}: calls of {} updates, so that {} steps are whole calls\n", asked,
        iterations, steps);
}

// Checks the options of the command, which has a model, and completes them.
void complete(CLI::App& command, bool predicts, ToolOptions& o) {
  o.trains = !predicts;
  for (const CLI::Option* option : command.get_options()) {
    if (option->count() > 0) o.given.push_back(option->get_name());
  }
  set_defaults(command, o);
  check_needs(command, o);
  divide_steps(o);
  if (!o.machine.empty() && o.staged()) o.step.rates = device_rates(rates_of_machine(o).rates);
  predicts ? use_inputs(command, o) : use_dataset(command, o);
  choose_devices(o, command.count("--replicas") > 0);
}

int run_command(const CommandLine& line, ToolOptions& o) {
  if (line.list) {
    for (const models::Model& m : models::all_models()) fmt::print("{:<13} {}\n", m.name, m.doc);
    return 0;
  }
  if (*line.inspect) return run_inspect(o);
  if (*line.doctor) return run_doctor(o);
  if (*line.plan && !plan_needs_model(*line.plan, o.plan)) return run_plan(o);
  if (*line.bench && bench_needs_suite(*line.bench))
    return o.model.dataset.empty() ? run_bench_suite(o) : run_bench_dataset(o);
  for (CLI::App* const command : line.with_model()) {
    if (*command) complete(*command, command == line.predict, o);
  }
  if (*line.plan) check_form(*line.plan, o);
  if (*line.train) return run_with_profile(*line.train, o, run_train);
  if (*line.eval) return run_with_profile(*line.eval, o, run_eval);
  if (*line.predict) return run_with_profile(*line.predict, o, run_predict);
  if (*line.plan) return run_with_profile(*line.plan, o, run_plan);
  if (*line.bench) return run_with_profile(*line.bench, o, run_bench);
  fmt::print("{}", line.app.help());
  return static_cast<int>(ErrorKind::kUsage);
}

bool is_option(const std::string& word) { return word.starts_with("--"); }

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

// Error{kUsage} for the first word that is neither a command nor an option of it, with the nearest
// one, for an option without its value, and for one that is given too often. Runs before values are
// read, so that "--sed 3" is not refused for its 3.
void check_words(const CommandLine& line, const std::vector<std::string>& words) {
  std::map<const CLI::Option*, int> given;
  const auto first = std::find_if_not(words.begin(), words.end(), is_option);
  const CLI::App* app = &line.app;
  std::string command = "sluice";
  if (first != words.end()) {
    std::vector<std::string> commands;
    for (const CLI::App* c : line.app.get_subcommands([](const CLI::App*) { return true; })) {
      commands.push_back(c->get_name());
      if (*first == commands.back()) app = c;
    }
    require_one_of("command", *first, commands);
    command += " " + *first;
  }
  for (auto word = words.begin(); word != words.end(); ++word) {
    if (!is_option(*word)) continue;
    const CLI::App& owner = word < first ? line.app : *app;
    const std::vector<std::string> names = option_names(owner);
    const std::string name = word->substr(0, word->find('='));
    if (std::find(names.begin(), names.end(), name) == names.end())
      fail(ErrorKind::kUsage, "{}: must be an option of {} (see {} --help-all){}", name, command,
           command, suggestion(name, names));
    const CLI::Option* const option = owner.get_option(name);
    if (option->get_items_expected_max() == 0) continue;  // A flag.
    const bool takes_flags = name == "--sweep" || name == "--sort";
    const bool follows = word + 1 != words.end() && (takes_flags || !is_option(word[1]));
    require(word->size() > name.size() + 1 || option->get_items_expected_min() == 0 || follows,
            "{}: must have a value", name);
    if (takes_flags && follows && word->size() == name.size()) ++word;
    require(++given[option] <= option->get_items_expected_max(), "{}: must be given once", name);
  }
}

// Parses the command line. Returns true if it only asks for a text, which is then printed.
bool parse(CommandLine& line, const std::vector<std::string>& words, const ToolOptions& o) {
  try {
    line.app.parse(std::vector(words.rbegin(), words.rend()));  // It takes words from the end.
    return false;
  } catch (const CLI::ExtrasError&) {
    fail(ErrorKind::kUsage,
         "'{}': must not be there; a command takes one argument besides its options",
         line.app.remaining(true).at(0));
  } catch (const CLI::ParseError& e) {
    std::ostringstream out, err;  // The library would ignore streams that cannot be written.
    require(line.app.exit(e, out, err) == 0, "{}", e.what());
    if (o.speaks()) fmt::print("{}", out.str());
    return true;
  }
}

// Returns the figures of the plan of a command line.
SweepFigures plan_of(const std::vector<std::string>& words,
                     const std::shared_ptr<runtime::ProcessGroup>& group) {
  ToolOptions o;
  o.session.group = group;
  CommandLine line(o);
  check_words(line, words);
  parse(line, words, o);
  complete(*line.plan, false, o);
  return figures_of(o);
}

}  // namespace

bool is_single_process(int argc, char** argv) {
  return std::find(argv, argv + argc, std::string_view(kSingleProcess)) != argv + argc;
}

int run_command_line(int argc, char** argv, const std::shared_ptr<runtime::ProcessGroup>& group) {
  ToolOptions o;
  o.session.group = group;
  CommandLine line(o);
  const std::vector<std::string> words = without_aliases({argv + 1, argv + argc});
  runtime::Agreement(group).require_same("command lines",
                                         fmt::format("'{}'", fmt::join(words, "' '")));
  check_words(line, words);
  if (parse(line, words, o)) return 0;
  if (!o.speaks()) {  // Process 0 reports the results of all processes.
    o.output.log_level = LogLevel::kError;
    require(std::freopen("/dev/null", "w", stdout) != nullptr, "cannot open /dev/null");
  }
  require(o.plan.sort.empty() || !o.plan.sweeps.empty(), "--sort requires --sweep");
  if (!o.plan.sweeps.empty()) {
    return run_sweep(*line.plan, o, words,
                     [&group](const std::vector<std::string>& all) { return plan_of(all, group); });
  }
  return run_command(line, o);
}

}  // namespace sluice::tool
