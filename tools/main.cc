#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <exception>
#include <memory>
#include <sstream>
#include <system_error>

#include "sluice/base/error.h"
#include "sluice/base/sys.h"
#include "sluice/comm/mpi_group.h"
#include "sluice/cpu/simd/isa.h"
#include "tools/options.h"

namespace sluice::tool {

namespace {

uint64_t parse_seed(const std::string& text) {
  uint64_t seed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
  require(error == std::errc() && end == text.data() + text.size(),
          "--seed: '{}' is not a number from 0 to 18446744073709551615", text);
  return seed;
}

constexpr const char* kRare = "Rarely needed";  // Options of which the help shows the names alone.

// A line for each option and one for those rarely needed, so that a command's help fits a small terminal.
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

void add_model(CLI::App& app, ToolOptions& o) {
  app.add_option("model", o.model, "The model (see --list)")
      ->check(CLI::IsMember({"mnist", "mnist-rts", "mnist-phased", "mlp"}));
  app.add_option("--layers", o.layers, "Linear layers of the MLP");
  app.add_option("--width", o.width, "Features of its hidden layers");
  app.add_option("--dropout", o.dropout, "Dropout probability")->group(kRare);
  app.add_option("--micro-batch", o.micro_batch, "Samples of a micro-batch");
  app.add_option("--accumulate", o.accumulate, "Micro-batches a step");
  app.add_option("--replicas", o.replica_list, "Replicas, each on its micro-batches")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->group(kRare);
  app.add_option("--shard-threshold", o.shard_threshold_list,
                 "Elements from which state is sharded")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->group(kRare);
  app.add_option("--optimizer", o.optimizer, "sgd, momentum, adam[-f16], adamw, adamax, lamb");
  app.add_option("--lr", o.lr, "Learning rate");
  app.add_option("--clip-norm", o.clip_norm, "Largest norm of all gradients")->group(kRare);
  app.add_option_function<std::string>(
         "--seed", [&o](const std::string& text) { o.seed = parse_seed(text); },
         "Of weights, order and dropout")
      ->type_name("UINT")
      ->group(kRare);
  app.add_option_function<std::string>(
         "--memory", [&o](const std::string& text) { o.memory = parse_bytes(text); },
         "Device memory budget: 4096, 512K, 64M")
      ->type_name("BYTES");
  app.add_option("--strategy", o.strategy, "resident or phased: a layer at a time")
      ->check(CLI::IsMember({"resident", "phased"}));
  app.add_option("--io-mode", o.io_mode, "Of phases: compute, io or io_overlapped")
      ->check(CLI::IsMember({"compute", "io", "io_overlapped"}))
      ->group(kRare);
  app.add_option("--io-queues", o.io_queues, "Queues for transfers: 0, 1 or 3")->group(kRare);
  app.add_flag("--recompute", o.recompute, "Make activations again")->group(kRare);
  app.add_option("--offload", o.offload, "auto, none or optimizer,weights,…")->type_name("WHAT");
  app.add_option("--remote", o.remote, "Where to: none, host or file:FOLDER")->type_name("PLACE");
  app.add_option_function<std::string>(
         "--remote-memory", [&o](const std::string& text) { o.remote_memory = parse_bytes(text); },
         "Budget there")
      ->type_name("BYTES")
      ->group(kRare);
  app.add_option_function<std::string>(
         "--remote-bandwidth",
         [&o](const std::string& text) { o.remote_bandwidth = parse_bytes(text); },
         "Bytes a second at most")
      ->type_name("BYTES")
      ->group(kRare);
  app.add_flag("--remote-direct", o.remote_direct, "Past the page cache")->group(kRare);
  app.add_flag("--verify-remote", o.verify_remote, "Check what files hold")->group(kRare);
  app.add_option("--threads", o.threads, "Workers (default: usable cores)");
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
  require(!o.full || (!o.json && !several),
          "--full: it is the text of one executable; --json and lists have none");
  require(!o.passes || (!o.json && !o.full && !several),
          "--passes cannot be combined with --json, --full or with lists");
  require(
      o.capacity < 0 || !o.problem.empty(),
      "--capacity: it is of a planner problem (--problem FILE.csv); a model's budget is --memory");
}

// The two models are `mnist` with other defaults: what flags do not say, is as in the documents that they come from.
void set_defaults(const CLI::App& command, ToolOptions& o) {
  const auto set = [&](const char* flag, auto& field, auto value) {
    if (command.count(flag) == 0) field = value;
  };
  const bool phased = o.model == "mnist-phased";
  if (!phased && o.model != "mnist-rts") return;
  set("--optimizer", o.optimizer, "adam-f16");
  set("--lr", o.lr, 1e-3);
  set("--micro-batch", o.micro_batch, 8);
  set("--shard-threshold", o.shard_threshold, "512");
  set("--accumulate", o.accumulate, phased ? 4 : 8);
  set("--replicas", o.replicas, phased ? 2 : 4);
  set("--strategy", o.strategy, phased ? "phased" : "resident");
  set("--offload", o.offload, phased ? "optimizer,weights" : "optimizer");
}

constexpr std::string_view kSuiteFlags[] = {"--only", "--rounds", "--python"};

void add_suite(CLI::App& app, ToolOptions& o) {
  o.python = {"/usr/bin/python3"};
  app.add_option("--only", o.only, "Without a model: cases whose name has this")->type_name("TEXT");
  app.add_option("--rounds", o.rounds, "Without a model: rounds a case");
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

int run(int argc, char** argv, const std::shared_ptr<runtime::ProcessGroup>& group) {
  ToolOptions o;
  o.group = group;
  CLI::App app{
      "Trains and runs networks by a plan that is known to the byte before the first step."};
  app.name("sluice");
  app.formatter(std::make_shared<ShortHelp>());
  app.set_version_flag("--version", [] {
    return fmt::format("sluice {} ({})", SLUICE_VERSION, cpu::to_string(cpu::current_isa()));
  });
  bool list = false;
  app.add_flag("--list", list, "List the models");
  app.require_subcommand(0, 1);

  CLI::App* train =
      app.add_subcommand("train", "Train a model.  Example: sluice train mnist --memory 16M");
  add_model(*train, o);
  add_run(*train, o);
  train->add_option("--epochs", o.epochs, "Times through the data");
  train->add_option("--steps", o.steps, "Steps in all, instead of epochs");
  train->add_option("--save", o.save, "Write the variables here at the end");

  CLI::App* eval = app.add_subcommand(
      "eval", "Test a trained model.  Example: sluice eval mnist --weights w.safetensors");
  add_model(*eval, o);
  add_run(*eval, o);

  CLI::App* plan =
      app.add_subcommand("plan", "Compile, prove and show the plan.  Example: sluice plan mnist");
  add_model(*plan, o);
  plan->add_flag("--full", o.full, "Print the whole executable");
  plan->add_flag("--passes", o.passes, "Show the compiler's passes with times and changes");
  plan->add_option("--print-after", o.print_after, "Show the program after a pass, or all");
  plan->add_option("--problem", o.problem, "Solve a planner problem (CSV)");
  plan->add_option_function<std::string>(
          "--capacity", [&o](const std::string& text) { o.capacity = parse_bytes(text); },
          "Of the problem")
      ->type_name("BYTES");
  plan->add_option("--check", o.check, "Prove the plan in a file");

  CLI::App* bench = app.add_subcommand(
      "bench",
      "Time a model's steps; without a model everything.  Example: sluice bench --only step");
  add_model(*bench, o);
  bench->add_option("--steps", o.steps, "Steps to time");
  bench->add_flag("--synthetic", o.synthetic, "Mean of 5 runs on ones, training and testing");
  add_suite(*bench, o);

  CLI::App* inspect =
      app.add_subcommand("inspect", "Describe a file.  Example: sluice inspect w.safetensors");
  inspect->add_option("file", o.file, "IDX[.gz], safetensors or plan")->required();

  CLI::App* doctor = app.add_subcommand("doctor", "Check this machine.  Example: sluice doctor");
  doctor->add_option("--data", o.data, "Folder with the digits");

  // No option means anything without a value; numbers would be read as 0.
  const CLI::Validator is_given([](std::string& text) { return text.empty() ? "it is empty" : ""; },
                                "");
  for (CLI::App* const command : {train, eval, plan, bench, inspect, doctor}) {
    for (CLI::Option* const option : command->get_options()) {
      if (option->get_type_size() > 0) option->check(is_given);
    }
  }

  std::string line;
  for (int a = 1; a < argc; ++a) line += fmt::format("'{}' ", argv[a]);
  runtime::Agreement(group).require_same("command lines", line);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (!o.speaks()) return static_cast<int>(ErrorKind::kUsage);
    std::ostringstream out, err;  // The library would ignore streams that cannot be written.
    const int code = app.exit(e, out, err);
    sys::write_stderr(err.str());
    fmt::print("{}", out.str());
    return code == 0 ? 0 : static_cast<int>(ErrorKind::kUsage);
  }
  if (!o.speaks()) be_silent(o);
  if (list) {
    fmt::print(
        "mnist         a multilayer perceptron with GELU on 28 x 28 digits\n"
        "mnist-rts     the same on replicas that keep shards of Adam's state in remote memory\n"
        "mnist-phased  the same a layer at a time, all variables in remote memory\n"
        "mlp           the same with ReLU, which trains at any depth\n");
    return 0;
  }
  require(o.threads >= 0 && o.threads <= 1024, "--threads: {} is outside [0, 1024]", o.threads);
  require(o.epochs >= 0, "--epochs: {} is negative", o.epochs);
  require(o.steps.value_or(0) >= 0, "--steps: {} is negative", o.steps.value_or(0));
  require(!*bench || o.steps != 0, "--steps: there is nothing to time in 0 of them");
  require(std::isfinite(o.lr), "--lr: it is not a number");
  for (const CLI::App* command : {train, eval, plan, bench}) {
    if (!*command) continue;
    set_defaults(*command, o);
    if (group != nullptr && command->count("--replicas") == 0)
      o.replicas = std::max<int64_t>(o.replicas, group->size());
    take_lists(command == plan, o);
    check_flags(*command, o);
  }
  if (*train) return run_train(o);
  if (*eval) return run_eval(o);
  if (*plan) return run_plan(o);
  if (*bench) return bench_needs_suite(*bench) ? run_bench_suite(o) : run_bench(o);
  if (*inspect) return run_inspect(o);
  if (*doctor) return run_doctor(o);
  fmt::print("{}", app.help());
  return static_cast<int>(ErrorKind::kUsage);
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
