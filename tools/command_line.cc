#include "tools/command_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "sluice/base/sys.h"
#include "sluice/cpu/simd/isa.h"
#include "sluice/devices/opaque_device.h"
#include "sluice/planner/solve.h"
#include "sluice/train/pipeline/stages.h"
#include "tools/aliases.h"
#include "tools/check_needs.h"
#include "tools/data/data_flags.h"
#include "tools/devices.h"
#include "tools/flags.h"
#include "tools/options.h"
#include "tools/plan/profile.h"
#include "tools/programs.h"

namespace sluice::tool {
namespace {

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
constexpr const char* kModel = "Model";
constexpr const char* kTraining = "Training";
constexpr const char* kMemory = "Memory";
constexpr const char* kStrategy = "Strategy";
constexpr const char* kOutput = "Output";
constexpr const char* kCompiler = "Compiler";
constexpr const char* kSuite = "Without a model";

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const models::Model& m : models::all_models()) names.emplace_back(m.name);
  return names;
}

// "(default: 1; mnist-rts: 8, mnist-phased: 4)", with the models that have a default of their own.
std::string default_of(std::string_view flag, std::string_view general) {
  std::vector<std::string> texts;
  for (const models::Model& m : models::all_models()) {
    for (const models::Default& d : m.defaults) {
      if (d.flag == flag && d.text != general)
        texts.push_back(fmt::format("{}: {}", m.name, d.text));
    }
  }
  return fmt::format("(default: {}{}{})", general, texts.empty() ? "" : "; ",
                     fmt::join(texts, ", "));
}

void add_model(Flags flags, ToolOptions& o) {
  flags.group(kModel).value(
      "model", "MODEL",
      fmt::format("Use this model: {} (default: mnist)", fmt::join(model_names(), ", ")),
      [&o](const std::string& text) {
        require_one_of("model", text, model_names());
        o.model.name = text;
      });
  flags.integer<int64_t, int64_t>("--layers", o.model.sizes.layers, 1, 100000,
                                  "Set the number of linear layers (default: 4)");
  flags.integer<int64_t, int64_t>(
      "--width", o.model.sizes.width, 1, kMost,
      "Set the features of hidden layers; channels in resnet18 (default: 512)");
}

void add_dropout(Flags flags, ToolOptions& o) {
  flags.group(kModel, Common::kNo)
      .value("--dropout", "P",
             "Drop hidden features with probability P while training (default: 0)",
             [&o](const std::string& text) {
               o.model.sizes.dropout = parse_real("--dropout", text);
               require(o.model.sizes.dropout >= 0 && static_cast<float>(o.model.sizes.dropout) < 1,
                       "--dropout: must be a float32 from 0 to below 1, got '{}'", text);
             });
}

void add_replicas(Flags& flags, const char* help, ToolOptions& o) {
  flags.list(
      "--replicas", "N", help + default_of("--replicas", "1"),
      [&o](const std::vector<std::string>& texts) {
        o.plan.replicas.clear();
        for (const std::string& text : texts)
          o.plan.replicas.push_back(parse_integer<int64_t>("--replicas", text, 1, kMostReplicas));
      });
}

void add_test_batch(Flags& flags, ToolOptions& o) {
  flags.integer<int64_t, int64_t>(
      "--test-batch", o.model.sizes.eval_batch, 1, kMost,
      "Evaluate N samples at a time on each replica " + default_of("--test-batch", "80"));
  flags.integer<int64_t, int64_t>(
      "--test-iterations", o.train.test_iterations, 1, kMost,
      "Evaluate N such batches in a call of the program " + default_of("--test-iterations", "1"));
}

void add_reductions(Flags flags, ToolOptions& o) {
  using train::Accumulation;
  flags.group(kTraining, Common::kNo)
      .choice("--accumulation-reduction", o.step.accumulation_reduction,
              {{"sum", Accumulation::kSum},
               {"mean", Accumulation::kMean},
               {"running_mean", Accumulation::kRunningMean}},
              "Reduce the gradients of micro-batches by this; requires --accumulate 2 or more "
              "(default: running_mean)");
  flags.choice("--replica-reduction", o.step.replica_reduction,
               {{"sum", train::ReplicaReduction::kSum}, {"mean", train::ReplicaReduction::kMean}},
               "Reduce the gradients of replicas by this; requires --replicas 2 or more "
               "(default: mean)");
  flags.choice("--accumulator-dtype", o.step.accumulator_dtype,
               {{"f32", f32}, {"f16", f16}, {"bf16", bf16}},
               "Accumulate gradients in this dtype; requires --accumulate 2 or more "
               "(default: the dtype of each variable)");
}

// Options that a program's step depends on, whether it runs or not.
void add_step(Flags flags, ToolOptions& o) {
  flags.group(kTraining);
  flags.integer<int64_t, int64_t>(
      "--micro-batch", o.model.sizes.micro_batch, 1, kMost,
      "Compute N samples at a time " + default_of("--micro-batch", "8"));
  flags.integer<int64_t, int64_t>(
      "--accumulate", o.step.accumulate, 1, kMost,
      "Reduce the gradients of N micro-batches for an update " + default_of("--accumulate", "1"));
  add_replicas(flags, "Train N replicas, each on samples of its own ", o);
  flags.text("--optimizer", optimizer_names("|"), o.train.optimizer,
             "Update variables by this optimizer " + default_of("--optimizer", "sgd"));
  flags.group(kTraining, Common::kNo)
      .value("--clip-norm", "NORM",
             "Scale all gradients so that their norm is at most NORM (default: no limit)",
             [&o](const std::string& text) {
               const double norm = parse_real("--clip-norm", text);
               require(norm >= 0, "--clip-norm: must be at least 0, got '{}'", text);
               o.step.max_grad_norm = norm > 0 ? std::optional(norm) : std::nullopt;
             });
  add_reductions(flags, o);
  add_test_batch(flags, o);
}

// The learning rate of commands whose program trains.
void add_rate(Flags flags, ToolOptions& o) {
  flags.group(kTraining).value("--lr", "RATE",
                               "Set the learning rate (default: " + default_rates() + ")",
                               [&o](const std::string& text) {
                                 o.train.lr = parse_real("--lr", text);
                                 require(*o.train.lr > 0, "--lr: must be above 0, got '{}'", text);
                               });
  flags.choice("--lr-schedule", o.train.lr_schedule,
               {{"constant", train::Decay::kConstant},
                {"linear", train::Decay::kLinear},
                {"cosine", train::Decay::kCosine}},
               "Feed the learning rate step by step, with this decay to 0 "
               "(default: a constant of the program)");
}

void add_device_iterations(Flags flags, ToolOptions& o) {
  flags.group(kTraining, Common::kNo);
  flags.integer<int64_t, int64_t>("--device-iterations", o.step.device_iterations, 1, kMost,
                                  "Run N updates in a call of the program; requires a strategy "
                                  "other than phased " +
                                      default_of("--device-iterations", "1"));
}

void add_training(Flags flags, ToolOptions& o) {
  flags.group(kTraining).integer<int64_t, int64_t>(
      "--epochs", o.train.epochs, 0, kMost,
      "Train N times through the samples " + default_of("--epochs", "1"));
  flags.integer<std::optional<int64_t>, int64_t>(
      "--steps", o.train.steps, 0, kMost, "Train N steps instead of epochs (default: by --epochs)");
  flags.text("--save", "FILE", o.train.save, "Write the variables to FILE at the end");
  flags.group(kTraining, Common::kNo)
      .integer<int64_t, int64_t>("--warmup-steps", o.train.warmup_steps, 0, kMost,
                                 "Raise the learning rate linearly in the first N steps; requires "
                                 "--lr-schedule (default: 0)");
  flags.integer<std::optional<int64_t>, int64_t>(
      "--check-replicas", o.train.check_replicas, 1, kMost,
      "Compare the replicas' copies of all variables every N steps; requires --replicas 2 or more "
      "(default: never)");
  flags.text("--torch-save", "FILE", o.train.torch_save,
             "Write the state_dict of the same PyTorch module to FILE at the end, as safetensors");
  flags.integer<uint64_t, uint64_t>(
      "--seed", o.step.seed, 0, std::numeric_limits<uint64_t>::max(),
      "Draw first weights, the samples' order and dropout from this seed (default: 0)");
}

void add_memory(Flags flags, ToolOptions& o) {
  flags.group(kMemory).list(
      "--memory", "BYTES",
      "Limit device memory: 4096, 512K, 64M, 2G, or a list (default: no limit)",
      [&o](const std::vector<std::string>& texts) {
        for (const std::string& text : texts) o.memory.push_back(parse_bytes("--memory", text));
        o.session.device.memory = o.memory[0];
      });
  flags.text("--offload", "TENSORS", o.offload.tensors,
             "Move tensors off the device: none, or some of "
             "optimizer,weights,activations,accumulators " +
                 default_of("--offload", "auto"));
  flags.text("--remote", "PLACE", o.offload.remote,
             "Keep offloaded tensors in PLACE: none, host or file:DIR (default: host)");
  flags.group(kMemory, Common::kNo)
      .integer<int64_t, int64_t>("--offload-threshold", o.step.locations.min_elements_off_device, 0,
                                 kMost,
                                 "Keep tensors of fewer than N elements on the device; requires a "
                                 "strategy other than phased "
                                 "(default: 2)");
  flags.bytes("--remote-memory", o.session.remote_memory,
              "Limit that memory to BYTES (default: no limit)");
  flags.bytes("--remote-bandwidth", o.session.remote_bandwidth,
              "Move at most BYTES a second to and from it (default: no limit)");
  flags.flag("--remote-direct", "Bypass the page cache; requires --remote file:DIR",
             [&o] { o.session.remote_direct = true; });
  flags.flag("--verify-remote", "Verify checksums of what is read; requires --remote file:DIR",
             [&o] { o.session.verify_remote = true; });
}

void add_strategy(Flags flags, ToolOptions& o) {
  flags.group(kStrategy).choice(
      "--strategy", o.execution,
      {{"resident", Execution::kResident},
       {"phased", Execution::kPhased},
       {"sharded", Execution::kSharded},
       {"pipelined", Execution::kPipelined}},
      "Run the model at once, by blocks, or in stages on several devices " +
          default_of("--strategy", "resident"));
  flags.integer<int, int>("--threads", o.session.device.threads, 0, 1024,
                          "Compute with N threads; 0 for all usable cores (default: 0)");
  if (make_opaque_device != nullptr) {
    flags.group("").optional_text(
        "--opaque", "all", o.opaque,
        "Compute on opaque test devices, or only on those with these ids");
  }
  flags.group(kStrategy, Common::kNo)
      .list("--shard-threshold", "N",
            "Share the state of weights of at least N elements among the replicas " +
                default_of("--shard-threshold", "inf"),
            [&o](const std::vector<std::string>& texts) {
              o.plan.shard_thresholds.clear();
              for (const std::string& text : texts)
                o.plan.shard_thresholds.push_back(parse_threshold("--shard-threshold", text));
            });
  flags.list(
      "--stages", "BLOCKS",
      "Cut the model into these stages, for example B1+B2,B3, or into a number of stages of "
      "about equal time; requires --strategy pipelined or sharded (default: each block)",
      [&o](const std::vector<std::string>& texts) { o.stages = train::parse_stages(texts); });
  flags.choice("--schedule", o.schedule,
               {{"grouped", train::Schedule::kGrouped},
                {"interleaved", train::Schedule::kInterleaved},
                {"sequential", train::Schedule::kSequential},
                {"auto", train::Schedule::kAuto}},
               "Run the micro-batches of a pipeline in this order; requires --strategy pipelined "
               "(default: grouped)");
  flags.integer<std::optional<int64_t>, int64_t>(
      "--devices", o.devices, 1, train::kMostDevices,
      "Compute on N devices, replicas included (default: those that the stages need)");
  flags.list("--device-ids", "IDS",
             "Compute on the devices with these ids, replica by replica; instead of --devices "
             "(default: 0, 1, …)",
             [&o](const std::vector<std::string>& texts) {
               o.device_ids = parse_ids("--device-ids", texts);
             });
  flags.list("--map", "PROCESSES",
             "Run each device in this process of mpirun: numbers, replica by replica, or devices "
             "for the first devices first (default: the first replicas first)",
             [&o](const std::vector<std::string>& texts) { o.map = texts; });
  flags.choice("--io-mode", o.step.io_mode,
               {{"compute", IoMode::kCompute},
                {"io", IoMode::kIo},
                {"io_overlapped", IoMode::kIoOverlapped}},
               "Transfer in a phase's own time (compute), on a queue beside it (io), or beside "
               "other blocks (io_overlapped); requires offloaded tensors (default: io)");
  flags.choice("--io-queues", o.session.io_queues, {{"1", 1}, {"3", 3}},
               "Use so many queues for transfers, 3 for loads, stores and prefetches; requires "
               "offloaded tensors and --io-mode io or io_overlapped (default: 1)");
  flags.flag("--recompute", "Recompute the activations of all blocks instead of keeping them",
             [&o] { o.step.recompute.all = true; });
  flags.list("--recompute-blocks", "NAMES",
             "Recompute the activations of these blocks, for example fc.1,fc.2",
             [&o](const std::vector<std::string>& names) { o.step.recompute.blocks = names; });
}

void add_compiler(Flags flags, ToolOptions& o) {
  flags.group(kCompiler, Common::kNo)
      .list("--disable", "PASS", "Leave out this optional compiler pass (see sluice plan --passes)",
            [&o](const std::vector<std::string>& texts) { o.session.disable = texts; });
  flags.flag("--verify", "Verify the program after every compiler pass",
             [&o] { o.session.verify = true; });
}

void add_json(Flags& flags, ToolOptions& o) {
  flags.flag("--json", "Print the results as one JSON object", [&o] { o.output.json = true; });
}

// Options of commands that run the model on samples.
void add_run(Flags flags, ToolOptions& o) {
  add_json(flags.group(kOutput), o);
  flags.flag("--quiet", "Report errors and results alone",
             [&o] { o.output.log_level = LogLevel::kError; });
  flags.group(kOutput, Common::kNo)
      .choice("--log-level", o.output.log_level,
              {{"error", LogLevel::kError}, {"info", LogLevel::kInfo}, {"debug", LogLevel::kDebug}},
              "Report errors alone, progress (info) too, or also passes and memory (debug) "
              "(default: info)");
}

void add_digest(Flags flags, ToolOptions& o) {
  flags.group(kOutput).flag("--digest", "Print a digest of the losses and variables",
                            [&o] { o.output.digest = true; });
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

void add_plan(Flags flags, ToolOptions& o) {
  using Form = PlanOptions::Form;
  add_json(flags.group(kOutput), o);
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
  flags.group(kCompiler, Common::kNo)
      .text("--print-after", "PASS", o.session.print_after,
            "Print the program after this pass to stderr, or after all");
  flags.group(kSuite).text("--problem", "FILE", o.plan.problem,
                           "Solve an allocation problem (CSV: id,lower,upper,size)");
  flags.bytes("--capacity", o.plan.capacity,
              "Limit the problem to BYTES; requires --problem (default: the file's)");
  flags.integer<std::optional<int64_t>, int64_t>(
      "--nodes", o.plan.nodes, 1, kMost,
      fmt::format("Give the problem's exact search up after N looks; requires --problem (default: "
                  "{}, about 30 s)",
                  planner::kLongSearchNodes));
  flags.text("--check", "FILE", o.plan.check, "Prove the plan that --full printed to FILE");
}

void add_suite(Flags flags, ToolOptions& o) {
  flags.group(kSuite).text("--only", "TEXT", o.bench.only,
                           "Run the cases whose name contains TEXT (default: all)");
  flags.integer<int, int>("--rounds", o.bench.rounds, 1, 1000000,
                          "Report the median of N rounds (default: 5)");
  flags.text("--dataset", "FILE", o.model.dataset,
             "Measure how fast csv:FILE, npz:FILE, safetensors:FILE, text:FILE (windows of 64 "
             "characters) or idx:DIR is read");
  flags.integer<std::optional<int64_t>, int64_t>(
      "--epochs", o.bench.epochs, 1, 1000000,
      "Read the dataset in N parts that are measured one by one (default: 1)");
  flags.integer<std::optional<int64_t>, int64_t>("--elements", o.bench.elements, 1, kMost,
                                                 "Read N elements in each part (default: 1000)");
  flags.flag("--repeat", "Read the dataset again and again; requires --dataset",
             [&o] { o.bench.repeat = true; });
  flags.list("--python", "PROGRAM",
             "Measure PyTorch of this Python too (default: /usr/bin/python3)",
             [&o](const std::vector<std::string>& texts) { o.bench.python = texts; });
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
  app.set_help_flag("--help", "Print this help; after a command, its common options")
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
      add_predict(flags, kModel, o);
      Flags batches(*command);
      batches.group(kModel);
      add_replicas(batches, "Compute on N replicas, each on samples of its own ", o);
      add_test_batch(batches, o);
    } else {
      if (command != bench) add_user_data(flags, kModel, o);
      if (command == train || command == eval) add_samples(flags, kModel, o);
      add_step(flags, o);
    }
    const bool trains = command != eval && command != predict;
    if (trains) add_rate(flags, o);
    if (trains) add_device_iterations(flags, o);
    add_memory(flags, o);
    add_strategy(flags, o);
    add_compiler(flags, o);
    if (command == train || command == eval || command == predict) add_run(flags, o);
    if (command == train || command == eval) add_digest(flags, o);
    if (command != predict) add_profile(flags, kOutput, o);
  }
  add_training(Flags(*train), o);
  add_plan(Flags(*plan), o);
  Flags timing(*bench);
  timing.group(kTraining);
  timing.integer<std::optional<int64_t>, int64_t>("--steps", o.train.steps, 1, kMost,
                                                  "Time N steps (default: 500)");
  timing.flag("--synthetic", "Report the mean of 5 runs on ones, training and testing",
              [&o] { o.model.synthetic = true; });
  add_json(timing.group(kOutput), o);
  add_suite(Flags(*bench), o);
  Flags(*inspect)
      .group("File")
      .text("file", "FILE", o.file, "Describe this IDX[.gz], safetensors, plan or report.json file")
      ->required();
  Flags(*inspect).group("File").text("other", "FILE", o.other, "Compare it with this report.json");
  Flags(*doctor).group(kModel).text("--data", "DIR", o.model.data,
                                    "Look for the samples in DIR (default: $SLUICE_DATA, "
                                    "data/mnist)");
}

// Gives the model's own defaults to flags that the command line does not have. Several updates in a
// call are left out where flags exclude them: phases, and steps that are not whole calls.
void set_defaults(CLI::App& command, const ToolOptions& o) {
  for (const models::Default& d : models::find_model(o.model.name).defaults) {
    CLI::Option* const option = command.get_option_no_throw(std::string(d.flag));
    if (option == nullptr || option->count() > 0) continue;
    if (d.flag == "--device-iterations" && (o.phased() || o.train.steps)) continue;
    option->run_callback_for_default()->default_val(std::string(d.text));
  }
}

// One value of each, except for a plan.
void take_lists(bool plan, ToolOptions& o) {
  if (o.plan.replicas.empty()) o.plan.replicas = {o.train.replicas};
  if (o.plan.shard_thresholds.empty())
    o.plan.shard_thresholds = {o.step.locations.min_elements_sharded};
  require(plan || !o.plan.compares(),
          "--replicas, --shard-threshold: must be one value each; sluice plan takes lists");
  o.train.replicas = o.plan.replicas[0];
  o.step.locations.min_elements_sharded = o.plan.shard_thresholds[0];
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
    if (!*command) continue;
    set_defaults(*command, o);
    take_lists(command == line.plan, o);
    check_needs(*command, o);
    command == line.predict ? use_inputs(*command, o) : use_dataset(*command, o);
    choose_devices(o, command->count("--replicas") > 0);
  }
  if (*line.plan) check_form(*line.plan, o);
  if (*line.train) return run_with_profile(*line.train, o, run_train);
  if (*line.eval) return run_with_profile(*line.eval, o, run_eval);
  if (*line.predict) return run_predict(o);
  if (*line.plan) return run_with_profile(*line.plan, o, run_plan);
  if (*line.bench) return run_with_profile(*line.bench, o, run_bench);
  fmt::print("{}", line.app.help());
  return static_cast<int>(ErrorKind::kUsage);
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

// Error{kUsage} for the first word that is neither a command nor an option of it, with the nearest
// one. Runs before values are read, so that "--sed 3" is not refused for its 3.
void check_words(const CommandLine& line, const std::vector<std::string>& words) {
  const auto is_option = [](const std::string& word) { return word.starts_with("--"); };
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
    const std::vector<std::string> names = option_names(word < first ? line.app : *app);
    const std::string name = word->substr(0, word->find('='));
    if (!is_option(*word) || std::find(names.begin(), names.end(), name) != names.end()) continue;
    fail(ErrorKind::kUsage, "{}: must be an option of {} (see {} --help-all){}", name, command,
         command, suggestion(name, names));
  }
}

// Parses; true if the command line asks for a text alone, which is then printed.
bool parse(CommandLine& line, const std::vector<std::string>& words, const ToolOptions& o) {
  try {
    line.app.parse(std::vector(words.rbegin(), words.rend()));  // It takes words from the end.
    return false;
  } catch (const CLI::ExtrasError&) {
    fail(ErrorKind::kUsage,
         "'{}': must not be there; a command takes one argument besides its options",
         line.app.remaining(true).at(0));
  } catch (const CLI::ArgumentMismatch& e) {
    const std::string text = e.what();
    fail(ErrorKind::kUsage, "{}: must {}", text.substr(0, text.find(':')),
         text.find("At Most") == text.npos ? "have a value" : "be given once");
  } catch (const CLI::ParseError& e) {
    std::ostringstream out, err;  // The library would ignore streams that cannot be written.
    require(line.app.exit(e, out, err) == 0, "{}", e.what());
    if (o.speaks()) fmt::print("{}", out.str());
    return true;
  }
}

}  // namespace

int run_command_line(int argc, char** argv, const std::shared_ptr<runtime::ProcessGroup>& group) {
  ToolOptions o;
  o.session.group = group;
  CommandLine line(o);
  const std::vector<std::string> words = without_aliases({argv + 1, argv + argc});
  runtime::Agreement(group).require_same("command lines",
                                         fmt::format("'{}'", fmt::join(words, "' '")));
  check_words(line, words);
  if (parse(line, words, o)) return 0;
  if (!o.speaks()) {  // Process 0 reports the results of all.
    o.output.log_level = LogLevel::kError;
    require(std::freopen("/dev/null", "w", stdout) != nullptr, "cannot open /dev/null");
  }
  return run_command(line, o);
}

}  // namespace sluice::tool
