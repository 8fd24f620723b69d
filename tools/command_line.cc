#include "tools/command_line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/base/options/words.h"
#include "sluice/base/sys.h"
#include "sluice/cpu/simd/isa.h"
#include "tools/aliases.h"
#include "tools/check_needs.h"
#include "tools/data/user_samples.h"
#include "tools/devices.h"
#include "tools/flags/flag_values.h"
#include "tools/flags/help.h"
#include "tools/machine/measure.h"
#include "tools/options.h"
#include "tools/plan/profile.h"
#include "tools/plan/sweep.h"
#include "tools/programs.h"

namespace sluice::tool {
namespace {

bool has_word(const std::vector<std::string>& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// The commands, and the flags of those that the words of a command line name.
struct CommandLine {
  explicit CommandLine(const std::vector<std::string>& the_words);

  const std::vector<std::string>& words;

  CLI::App app{
      "Trains and runs neural networks by a plan that is known to the byte before the first step."};
  CLI::App* train = command(kTrain, "train", "Train a model: sluice train mnist --memory 16M");
  CLI::App* eval =
      command(kEval, "eval", "Test a model: sluice eval mnist --weights w.safetensors");
  CLI::App* predict = command(
      kPredict, "predict",
      "Apply a model to your samples: sluice predict mlp --weights F --dataset csv:F --to F.npz");
  CLI::App* generate = command(kGenerate, "generate",
                               "Continue a text: sluice generate gpt --weights F --prompt TEXT");
  CLI::App* plan =
      command(kPlan, "plan", "Compile a model, prove its plan and show it: sluice plan mnist");
  CLI::App* bench =
      command(kBench, "bench", "Time a model's steps, or the engine: sluice bench --only step");
  CLI::App* inspect = command(kInspect, "inspect", "Describe a file: sluice inspect w.safetensors");
  CLI::App* doctor =
      command(kDoctor, "doctor", "Check that this machine computes right: sluice doctor");
  bool list = false;

 private:
  CLI::App* command(Command bit, const char* name, const char* help) {
    CLI::App* const sub = app.add_subcommand(name, help);
    sub->formatter(std::make_shared<Help>());
    sub->set_help_flag("--help", "Print the common options")->group("");
    sub->set_help_all_flag("--help-all", "Print every option")->group("");
    if (has_word(words, name) || has_word(words, "--help-all")) add_flags(*sub, bit);
    return sub;
  }
};

CommandLine::CommandLine(const std::vector<std::string>& the_words) : words(the_words) {
  app.name("sluice");
  app.formatter(std::make_shared<Help>());
  app.require_subcommand(0, 1);
  app.add_flag("--list", list, "Print the models")->group("Options");
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
      "128 + N stopped by signal N.\n\nRead on: docs/first_hour.md, docs/tour.md, docs/howto, "
      "docs/cli.md");
  train->footer(aliases_text());
}

// Shortens calls of several updates where --steps are not whole calls: to the largest number of
// updates that divides the steps. The bits do not depend on it.
void divide_steps(ToolOptions& o) {
  constexpr int64_t kMaxIterations = 1'000'000;  // Limits the search.
  int64_t& iterations = o.step.device_iterations;
  const int64_t steps = o.train.steps.value_or(0), asked = iterations;
  if (steps % asked == 0) return;
  const int64_t period = o.step.output.value_or(train::Output::all()).period;
  iterations = std::min({asked, steps, kMaxIterations});
  while (iterations > 0 && (steps % iterations != 0 || iterations % period != 0)) --iterations;
  require(iterations > 0,
          "--steps: must be a multiple of the N of --output-mode every:N, {}, got {}", period,
          steps);
  if (o.output.speaks() && !o.output.json)
    sys::print_stderr(
        "--device-iterations {}: calls of {} updates, so that {} steps are whole calls\n", asked,
        iterations, steps);
}

// Process 0 reports the results of all processes.
void silence_other_processes(ToolOptions& o) {
  if (o.speaks()) return;
  o.output.log_level = LogLevel::kError;
  require(std::freopen("/dev/null", "w", stdout) != nullptr, "cannot open /dev/null");
}

// Reads the options of `sluice generate`.
void read_generate_options(const CLI::App& command, ToolOptions& o) {
  o.trains = false;
  o.model.name = "gpt";
  set_options(command, kGenerate, false, o);
  silence_other_processes(o);
  use_generator(command, o);
}

// Reads the options of a command. Those of a command with a model are checked and completed.
void read_options(const CLI::App& command, Command bit, bool has_model, ToolOptions& o) {
  o.trains = bit != kPredict;
  check_exclusions(command);
  set_options(command, bit, has_model, o);
  silence_other_processes(o);
  if (!has_model) return;
  for (const CLI::Option* option : command.get_options()) {
    if (option->count() > 0) o.given.push_back(option->get_name());
  }
  check_needs(command, o);
  divide_steps(o);
  if (!o.machine.empty() && o.staged()) o.step.rates = device_rates(rates_of_machine(o).rates);
  bit == kPredict ? use_inputs(command, o) : use_dataset(command, o);
  choose_devices(o, command.count("--replicas") > 0);
}

int run_command(const CommandLine& line, ToolOptions& o) {
  if (line.list) {
    for (const models::Model& m : models::all_models()) fmt::print("{:<13} {}\n", m.name, m.doc);
    return 0;
  }
  const auto run_model = [&](const CLI::App& command, Command bit, int (*run)(const ToolOptions&)) {
    read_options(command, bit, true, o);
    return run_with_profile(command, o, run);
  };
  if (*line.train) return run_model(*line.train, kTrain, run_train);
  if (*line.eval) return run_model(*line.eval, kEval, run_eval);
  if (*line.predict) return run_model(*line.predict, kPredict, run_predict);
  if (*line.generate) {
    read_generate_options(*line.generate, o);
    return run_generate(o);
  }
  if (*line.plan && plan_needs_model(*line.plan)) return run_model(*line.plan, kPlan, run_plan);
  if (*line.bench && !bench_needs_suite(*line.bench))
    return run_model(*line.bench, kBench, run_bench);
  const auto run_alone = [&](const CLI::App& command, Command bit, int (*run)(const ToolOptions&)) {
    read_options(command, bit, false, o);
    return run(o);
  };
  if (*line.plan) return run_alone(*line.plan, kPlan, run_plan);
  if (*line.bench) {
    const bool dataset = line.bench->count("--dataset") > 0;
    return run_alone(*line.bench, kBench, dataset ? run_bench_dataset : run_bench_suite);
  }
  if (*line.inspect) return run_alone(*line.inspect, kInspect, run_inspect);
  if (*line.doctor) return run_alone(*line.doctor, kDoctor, run_doctor);
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
    const bool accepts_flags = name == "--sweep" || name == "--sort";
    const bool follows = word + 1 != words.end() && (accepts_flags || !is_option(word[1]));
    require(word->size() > name.size() + 1 || option->get_items_expected_min() == 0 || follows,
            "{}: must have a value", name);
    if (accepts_flags && follows && word->size() == name.size()) ++word;
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
         "unexpected argument '{}': a command has one argument besides its options",
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
  o.step.session.group = group;
  CommandLine line(words);
  check_words(line, words);
  parse(line, words, o);
  read_options(*line.plan, kPlan, true, o);
  return figures_of(o);
}

}  // namespace

bool is_single_process(int argc, char** argv) {
  return std::find(argv, argv + argc, std::string_view(kSingleProcess)) != argv + argc;
}

int run_command_line(int argc, char** argv, const std::shared_ptr<runtime::ProcessGroup>& group) {
  ToolOptions o;
  o.step.session.group = group;
  const std::vector<std::string> words = without_aliases({argv + 1, argv + argc});
  CommandLine line(words);
  runtime::Agreement(group).require_same("command lines",
                                         fmt::format("'{}'", fmt::join(words, "' '")));
  check_words(line, words);
  if (parse(line, words, o)) return 0;
  if (!*line.plan || line.plan->count("--sweep") == 0) return run_command(line, o);
  set_sweep_options(*line.plan, o);
  silence_other_processes(o);
  return run_sweep(*line.plan, o, words,
                   [&group](const std::vector<std::string>& all) { return plan_of(all, group); });
}

}  // namespace sluice::tool
