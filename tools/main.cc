#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <exception>
#include <limits>
#include <memory>
#include <sstream>
#include <string>
#include <system_error>
#include <type_traits>

#include "sluice/base/error.h"
#include "sluice/base/sys.h"
#include "sluice/comm/mpi_group.h"
#include "sluice/cpu/simd/isa.h"
#include "sluice/planner/solve.h"
#include "sluice/models/model.h"
#include "tools/options.h"

namespace sluice::tool {

namespace {

constexpr const char* kRare = "Rarely needed";  // Options of which the help shows the names alone.

// A line for each option and one for those rarely needed, so that a command's help fits a small
// terminal.
class ShortHelp : public CLI::Formatter {
 public:
  ShortHelp() { column_width(40); }

  std::string make_group(std::string group, bool is_positional,
                         std::vector<const CLI::Option*> options) const override {
    std::string text;
    if (group == kRare) {
      for (const CLI::Option* option : options) text += " " + option->get_name();
      return text.empty() ? text : "  also" + text + "\n";
    }
    for (const CLI::Option* option : options) {
      if (!option->check_lname("help")) text += make_option(option, is_positional);
    }
    return text;
  }
};

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

// Adds a flag whose text `parse(flag, text)` turns into the field's value.
template <typename T, typename F>
CLI::Option* add_parsed(CLI::App& app, const char* flag, T& field, F parse, const char* type,
                        const std::string& help) {
  return app
      .add_option_function<std::string>(
          flag, [&field, flag, parse](const std::string& text) { field = parse(flag, text); }, help)
      ->type_name(type);
}

// Adds a flag for an integer of [least, most].
template <typename T, typename Number>
CLI::Option* add_integer(CLI::App& app, const char* flag, T& field, Number least, Number most,
                         const std::string& help) {
  const auto parse = [least, most](const char* name, const std::string& text) {
    return parse_integer<Number>(name, text, least, most);
  };
  CLI::Option* const option = add_parsed(app, flag, field, parse, "INT", help);
  if constexpr (std::is_same_v<T, Number>) option->default_str(std::to_string(field));
  return option;
}

CLI::Option* add_bytes(CLI::App& app, const char* flag, int64_t& field, const char* help) {
  return add_parsed(app, flag, field, parse_bytes, "BYTES", help);
}

// Adds a flag for one value or several between commas.
template <typename F>
void add_list(CLI::App& app, const char* flag, std::vector<int64_t>& field, F parse,
              const char* help) {
  app.add_option_function<std::vector<std::string>>(
         flag,
         [&field, flag, parse](const std::vector<std::string>& texts) {
           field.clear();
           for (const std::string& text : texts) field.push_back(parse(flag, text));
         },
         help)
      ->type_name("INT")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->group(kRare);
}

// " (mnist-rts: 8, mnist-phased: 4)": the models with a default of their own for a flag.
std::string models_with_default(std::string_view flag) {
  std::vector<std::string> texts;
  for (const models::Model& m : models::all_models()) {
    for (const models::Default& d : m.defaults) {
      if (d.flag == flag) texts.push_back(fmt::format("{}: {}", m.name, d.text));
    }
  }
  return texts.empty() ? "" : fmt::format(" ({})", fmt::join(texts, ", "));
}

void add_network(CLI::App& app, ToolOptions& o) {
  std::vector<std::string> names;
  for (const models::Model& m : models::all_models()) names.emplace_back(m.name);
  app.add_option("model", o.model, "The model (see --list)")->check(CLI::IsMember(names));
  add_integer<int64_t, int64_t>(app, "--layers", o.sizes.layers, 1, 100000,
                                "Linear layers of the MLP");
  add_integer<int64_t, int64_t>(app, "--width", o.sizes.width, 1, kMost,
                                "Features of its hidden layers");
  app.add_option("--dropout", o.sizes.dropout, "Dropout probability")->group(kRare);
  add_integer<int64_t, int64_t>(app, "--micro-batch", o.sizes.micro_batch, 1, kMost,
                                "Samples of a micro-batch");
  add_integer<int64_t, int64_t>(app, "--accumulate", o.accumulate, 1, kMost,
                                "Micro-batches a step" + models_with_default("--accumulate"));
  const auto replicas = [](const char* flag, const std::string& text) {
    return parse_integer<int64_t>(flag, text, 1, kMostReplicas);
  };
  add_list(app, "--replicas", o.replica_list, replicas, "Replicas, each on its micro-batches");
  add_list(app, "--shard-threshold", o.shard_threshold_list, parse_threshold,
           "Elements from which state is sharded");
  app.add_option("--optimizer", o.optimizer, "sgd, momentum, adam[-f16], adamw, adamax, lamb");
  app.add_option("--lr", o.lr, "Learning rate (default: " + default_rates() + ")");
  app.add_option("--clip-norm", o.clip_norm, "Largest norm of all gradients")->group(kRare);
  add_integer<uint64_t, uint64_t>(app, "--seed", o.seed, 0, std::numeric_limits<uint64_t>::max(),
                                  "Of weights, order and dropout")
      ->group(kRare);
}

void add_model(CLI::App& app, ToolOptions& o) {
  add_network(app, o);
  add_bytes(app, "--memory", o.memory, "Device memory budget: 4096, 512K, 64M");
  app.add_option("--strategy", o.strategy, "resident or phased: a layer at a time")
      ->check(CLI::IsMember({"resident", "phased"}));
  app.add_option("--io-mode", o.io_mode, "Of phases: compute, io or io_overlapped")
      ->check(CLI::IsMember({"compute", "io", "io_overlapped"}))
      ->group(kRare);
  add_integer<int, int>(app, "--io-queues", o.io_queues, 0, 3, "Queues for transfers: 0, 1 or 3")
      ->group(kRare);
  app.add_flag("--recompute", o.recompute, "Make activations again")->group(kRare);
  app.add_option("--offload", o.offload, "auto, none or optimizer,weights")->type_name("WHAT");
  app.add_option("--remote", o.remote, "Where to: none, host or file:FOLDER")->type_name("PLACE");
  add_bytes(app, "--remote-memory", o.remote_memory, "Budget there")->group(kRare);
  add_bytes(app, "--remote-bandwidth", o.remote_bandwidth, "Bytes a second at most")->group(kRare);
  app.add_flag("--remote-direct", o.remote_direct, "Past the page cache")->group(kRare);
  app.add_flag("--verify-remote", o.verify_remote, "Check what files hold")->group(kRare);
  add_integer<int64_t, int64_t>(app, "--threads", o.threads, 0, 1024, "Workers (0: usable cores)");
  app.add_option("--disable", o.disable, "Compiler pass to leave out")->group(kRare);
  app.add_flag("--verify", o.verify, "Verify the program after every compiler pass")->group(kRare);
  app.add_flag("--json", o.json, "One JSON object on stdout")->group(kRare);
}

void add_run(CLI::App& app, ToolOptions& o) {
  app.add_option("--data", o.data, "Folder with the digits");
  app.add_flag("--synthetic", o.synthetic, "Use generated digits")->group(kRare);
  app.add_option("--weights", o.weights, "Start from this file");
  app.add_flag("--digest", o.digest, "Print a digest of losses and weights");
  app.add_option("--log-level", o.log_level, "error, info or debug")
      ->check(CLI::IsMember({"error", "info", "debug"}))
      ->group(kRare);
}

// One of each, except for a plan. Error{kUsage} for more.
void take_lists(bool plan, ToolOptions& o) {
  if (o.replica_list.empty()) o.replica_list = {o.replicas};
  if (o.shard_threshold_list.empty()) o.shard_threshold_list = {o.shard_threshold};
  require(plan || o.replica_list.size() * o.shard_threshold_list.size() == 1,
          "--replicas, --shard-threshold: lists are for sluice plan");
  o.replicas = o.replica_list[0];
  o.shard_threshold = o.shard_threshold_list[0];
}

// Flags that would change nothing are mistakes. Error{kUsage} for them.
void check_flags(const CLI::App& command, const ToolOptions& o) {
  for (const char* flag : {"--io-mode", "--io-queues", "--recompute"}) {
    require(command.count(flag) == 0 || o.strategy == "phased",
            "{}: it is for phases (--strategy phased), the strategy is {}", flag, o.strategy);
  }
  const bool several = o.replica_list.size() * o.shard_threshold_list.size() > 1;
  require(!o.dot || (!o.json && !o.full && !o.passes && !several && o.print_after.empty() &&
                     o.problem.empty() && o.check.empty()),
          "--dot cannot be combined with --json, --full, --passes, --print-after, --problem, "
          "--check or with lists");
  require(!o.full || (!o.json && !several),
          "--full: it is the text of one executable; --json and lists have none");
  require(!o.passes || (!o.json && !o.full && !several),
          "--passes cannot be combined with --json, --full or with lists");
  require(
      o.capacity < 0 || !o.problem.empty(),
      "--capacity: it is of a planner problem (--problem FILE.csv); a model's budget is --memory");
  require(!o.nodes || !o.problem.empty(), "--nodes requires --problem FILE.csv");
}

// Gives the model's own defaults to flags that the command line does not have.
void set_defaults(CLI::App& command, const ToolOptions& o) {
  for (const models::Default& d : models::find_model(o.model).defaults) {
    CLI::Option* const option = command.get_option(std::string(d.flag));
    if (option->count() == 0) option->run_callback_for_default()->default_val(std::string(d.text));
  }
}

constexpr std::string_view kSuiteFlags[] = {"--only", "--rounds", "--python"};

void add_suite(CLI::App& app, ToolOptions& o) {
  o.python = {"/usr/bin/python3"};
  app.add_option("--only", o.only, "Without a model: cases whose name has this")->type_name("TEXT");
  add_integer<int, int>(app, "--rounds", o.rounds, 1, 1000000, "Without a model: rounds a case");
  app.add_option("--python", o.python, "Without a model: has PyTorch; more to report")
      ->type_name("PROGRAM")
      ->allow_extra_args(false);
}

// Whether it runs without a model. Error{kUsage} for flags of the other way.
bool bench_needs_suite(const CLI::App& app) {
  const bool suite = app.count("model") == 0;
  for (const CLI::Option* option : app.get_options()) {
    if (option->count() == 0 || option->check_name("model")) continue;
    const std::string name = option->get_name();
    const bool of_suite =
        std::find(std::begin(kSuiteFlags), std::end(kSuiteFlags), name) != std::end(kSuiteFlags);
    const bool of_both = name == "--json" || name == "--threads";
    require(of_both || of_suite == suite, "{}: {}", name,
            suite ? "it is for a model; name one (sluice bench mnist)"
                  : "it is for bench without a model");
  }
  return suite;
}

// The results are those of all, and are told once.
void be_silent(ToolOptions& o) {
  o.log_level = "error";
  require(std::freopen("/dev/null", "w", stdout) != nullptr, "cannot open /dev/null");
}

// The commands and their flags.
struct CommandLine {
  explicit CommandLine(ToolOptions& o);

  CLI::App app{
      "Trains and runs networks by a plan that is known to the byte before the first step."};
  CLI::App* train;
  CLI::App* eval;
  CLI::App* plan;
  CLI::App* bench;
  CLI::App* inspect;
  CLI::App* doctor;
  bool list = false;
};

void add_plan(CLI::App& app, ToolOptions& o) {
  add_model(app, o);
  app.add_flag("--full", o.full, "Print the whole executable");
  app.add_flag("--passes", o.passes, "Show the compiler's passes with times and changes");
  app.add_option("--print-after", o.print_after, "Show the program after a pass, or all")
      ->group(kRare);
  app.add_option("--problem", o.problem, "Solve a planner problem (CSV)");
  add_bytes(app, "--capacity", o.capacity, "Of the problem");
  add_integer<std::optional<int64_t>, int64_t>(
      app, "--nodes", o.nodes, 1, kMost,
      fmt::format("Looks of its exact search (default {})", planner::kLongSearchNodes));
  app.add_option("--check", o.check, "Prove the plan in a file");
}

CommandLine::CommandLine(ToolOptions& o) {
  app.name("sluice");
  app.formatter(std::make_shared<ShortHelp>());
  app.set_version_flag("--version", [] {
    return fmt::format("sluice {} ({})", SLUICE_VERSION, cpu::to_string(cpu::current_isa()));
  });
  app.add_flag("--list", list, "List the models");
  app.require_subcommand(0, 1);

  train = app.add_subcommand("train", "Train a model.  Example: sluice train mnist --memory 16M");
  add_model(*train, o);
  add_run(*train, o);
  add_integer<int64_t, int64_t>(*train, "--epochs", o.epochs, 0, kMost, "Times through the data");
  add_integer<std::optional<int64_t>, int64_t>(*train, "--steps", o.steps, 0, kMost,
                                               "Steps in all, instead of epochs");
  train->add_option("--save", o.save, "Write the variables here at the end");

  eval = app.add_subcommand("eval",
                            "Test a trained model.  Example: sluice eval mnist --weights "
                            "w.safetensors");
  add_model(*eval, o);
  add_run(*eval, o);

  plan =
      app.add_subcommand("plan", "Compile, prove and show the plan.  Example: sluice plan mnist");
  add_plan(*plan, o);

  bench = app.add_subcommand(
      "bench",
      "Time a model's steps; without a model everything.  Example: sluice bench --only step");
  add_model(*bench, o);
  add_integer<std::optional<int64_t>, int64_t>(*bench, "--steps", o.steps, 1, kMost,
                                               "Steps to time");
  bench->add_flag("--synthetic", o.synthetic, "Mean of 5 runs on ones, training and testing");
  add_suite(*bench, o);

  inspect =
      app.add_subcommand("inspect", "Describe a file.  Example: sluice inspect w.safetensors");
  inspect->add_option("file", o.file, "IDX[.gz], safetensors or plan")->required();

  doctor = app.add_subcommand("doctor", "Check this machine.  Example: sluice doctor");
  doctor->add_option("--data", o.data, "Folder with the digits");

  const CLI::Validator is_given([](std::string& text) { return text.empty() ? "it is empty" : ""; },
                                "");
  for (CLI::App* const command : {train, eval, plan, bench, inspect, doctor}) {
    for (CLI::Option* const option : command->get_options()) {
      if (option->get_type_size() > 0) option->check(is_given);
    }
  }
}

// Completes the options of a command that takes a model. Error{kUsage} for flags that contradict
// each other.
void complete(const CommandLine& line, ToolOptions& o) {
  for (CLI::App* const command : {line.train, line.eval, line.plan, line.bench}) {
    if (!*command) continue;
    set_defaults(*command, o);
    take_lists(command == line.plan, o);
    if (o.group != nullptr && command->count("--replicas") == 0)
      o.replicas = std::max<int64_t>(o.replicas, o.group->size());
    o.replica_list[0] = o.replicas;
    require(o.replicas <= kMostReplicas, "mpirun: must start at most {} processes, got {}",
            kMostReplicas, o.replicas);
    check_flags(*command, o);
  }
}

int run_command(const CommandLine& line, const ToolOptions& o) {
  if (line.list) {
    for (const models::Model& m : models::all_models()) fmt::print("{:<13} {}\n", m.name, m.doc);
    return 0;
  }
  if (*line.train) return run_train(o);
  if (*line.eval) return run_eval(o);
  if (*line.plan) return run_plan(o);
  if (*line.bench) return bench_needs_suite(*line.bench) ? run_bench_suite(o) : run_bench(o);
  if (*line.inspect) return run_inspect(o);
  if (*line.doctor) return run_doctor(o);
  fmt::print("{}", line.app.help());
  return static_cast<int>(ErrorKind::kUsage);
}

int run(int argc, char** argv, const std::shared_ptr<runtime::ProcessGroup>& group) {
  ToolOptions o;
  o.group = group;
  CommandLine line(o);
  std::string words;
  for (int a = 1; a < argc; ++a) words += fmt::format("'{}' ", argv[a]);
  runtime::Agreement(group).require_same("command lines", words);
  try {
    line.app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (!o.speaks()) return static_cast<int>(ErrorKind::kUsage);
    std::ostringstream out, err;  // The library would ignore streams that cannot be written.
    const int code = line.app.exit(e, out, err);
    sys::write_stderr(err.str());
    fmt::print("{}", out.str());
    return code == 0 ? 0 : static_cast<int>(ErrorKind::kUsage);
  }
  if (!o.speaks()) be_silent(o);
  require(std::isfinite(o.lr.value_or(0)), "--lr: it is not a number");
  complete(line, o);
  return run_command(line, o);
}

}  // namespace
}  // namespace sluice::tool

int main(int argc, char** argv) {
  std::shared_ptr<sluice::runtime::ProcessGroup> group;
  const auto report = [&](const sluice::Error& e) {
    if (group == nullptr || group->fail(e))
      sluice::sys::print_stderr("error ({}): {}\n", sluice::to_string(e.kind()), e.what());
    return e.exit_code();
  };
  try {
    sluice::sys::open_standard_descriptors();
    std::signal(SIGXFSZ, SIG_IGN);  // A file at its size limit is an error of the write, EFBIG.
    group = sluice::comm::join_mpi();
    const int code = sluice::tool::run(argc, argv, group);
    // Flush here so that a full disk is reported as an error.
    if (std::fflush(stdout) != 0)
      throw std::system_error(errno, std::generic_category(), "cannot write to stdout");
    return code;
  } catch (const sluice::Error& e) {
    return report(e);
  } catch (const std::system_error& e) {
    return report({sluice::ErrorKind::kIo, e.what()});
  } catch (const std::exception& e) {
    return report({sluice::ErrorKind::kInternal, e.what()});
  }
}
