#include "tools/flags/training_flags.h"

#include <limits>
#include <optional>
#include <vector>

#include "tools/flags/flags.h"

namespace sluice::tool {
namespace {

void add_reductions(Flags flags, ToolOptions& o) {
  using train::Accumulation;
  flags.group(kTrainingGroup, Common::kNo)
      .choice("--accumulation-reduction", o.step.accumulation_reduction,
              {{"sum", Accumulation::kSum},
               {"mean", Accumulation::kMean},
               {"running_mean", Accumulation::kRunningMean}},
              {"Reduce the gradients of micro-batches by this; requires --accumulate 2 or more",
               "running_mean"});
  flags.choice("--replica-reduction", o.step.replica_reduction,
               {{"sum", train::ReplicaReduction::kSum}, {"mean", train::ReplicaReduction::kMean}},
               {"Reduce the gradients of replicas by this; requires --replicas 2 or more", "mean"});
  flags.choice("--accumulator-dtype", o.step.accumulator_dtype,
               {{"f32", f32}, {"f16", f16}, {"bf16", bf16}},
               {"Accumulate gradients in this dtype; requires --accumulate 2 or more",
                "the dtype of each variable"});
}

train::Output parse_output_mode(const std::string& text) {
  constexpr std::string_view kEvery = "every:";
  if (text.starts_with(kEvery)) {
    return train::Output::every(
        parse_integer<int64_t>("--output-mode every", text.substr(kEvery.size()), 1, kMost));
  }
  require_one_of("--output-mode", text, {"all", "final", "sum", "every:N"});
  return train::parse_output(text);
}

}  // namespace

void add_replicas(Flags& flags, const char* help, ToolOptions& o) {
  flags.integer<int64_t, int64_t>("--replicas", o.train.replicas, 1, kMaxReplicas, {help, "1"});
}

void add_test_batch(Flags& flags, ToolOptions& o) {
  flags.integer<int64_t, int64_t>("--test-batch", o.model.sizes.eval_batch, 1, kMost,
                                  {"Evaluate N samples at a time on each replica", "80"});
  flags.integer<int64_t, int64_t>("--test-iterations", o.train.test_iterations, 1, kMost,
                                  {"Evaluate N such batches in a call of the program", "1"});
}

void add_step(Flags flags, ToolOptions& o) {
  flags.group(kTrainingGroup);
  flags.integer<int64_t, int64_t>("--micro-batch", o.model.sizes.micro_batch, 1, kMost,
                                  {"Compute N samples at a time", "8"});
  flags.integer<int64_t, int64_t>("--accumulate", o.step.accumulate, 1, kMost,
                                  {"Reduce the gradients of N micro-batches for an update", "1"});
  add_replicas(flags, "Train N replicas, each on samples of its own", o);
  flags.text("--optimizer", optimizer_names("|"), o.train.optimizer,
             {"Update variables by this optimizer", "sgd"});
  flags.group(kTrainingGroup, Common::kNo)
      .value("--clip-norm", "NORM",
             {"Scale all gradients so that their norm is at most NORM", "no limit"},
             [&o](const std::string& text) {
               const double norm = parse_real("--clip-norm", text);
               require(norm >= 0, "--clip-norm: must be at least 0, got '{}'", text);
               o.step.max_grad_norm = norm > 0 ? std::optional(norm) : std::nullopt;
             });
  add_reductions(flags, o);
  add_test_batch(flags, o);
}

void add_rate(Flags flags, ToolOptions& o) {
  flags.group(kTrainingGroup)
      .value("--lr", "RATE", {"Set the learning rate", default_rates()},
             [&o](const std::string& text) {
               o.train.lr = parse_real("--lr", text);
               require(*o.train.lr > 0, "--lr: must be above 0, got '{}'", text);
             });
  flags.choice(
      "--lr-schedule", o.train.lr_schedule,
      {{"constant", train::Decay::kConstant},
       {"linear", train::Decay::kLinear},
       {"cosine", train::Decay::kCosine}},
      {"Feed the learning rate step by step, with this decay to 0", "a constant of the program"});
}

void add_device_iterations(Flags flags, ToolOptions& o) {
  flags.group(kTrainingGroup, Common::kNo);
  flags.integer<int64_t, int64_t>("--device-iterations", o.step.device_iterations, 1, kMost,
                                  {"Run N updates in a call of the program", "1"});
}

void add_output_mode(Flags flags, ToolOptions& o) {
  flags.group(kTrainingGroup, Common::kNo);
  flags.value("--output-mode", "MODE",
              {"Return the results of all micro-batches of a call, of the final one, their sum, or "
               "those of every:N, each Nth update",
               "all"},
              [&o](const std::string& text) { o.step.output = parse_output_mode(text); });
}

void add_training(Flags flags, ToolOptions& o) {
  flags.group(kTrainingGroup);
  flags.integer<int64_t, int64_t>("--epochs", o.train.epochs, 0, kMost,
                                  {"Train N times through the samples", "1"});
  flags.integer<std::optional<int64_t>, int64_t>(
      "--steps", o.train.steps, 0, kMost, {"Train N steps instead of epochs", "by --epochs"});
  flags.text("--save", "FILE", o.train.save, "Write the variables to FILE at the end");
  flags.group(kTrainingGroup, Common::kNo)
      .integer<int64_t, int64_t>(
          "--warmup-steps", o.train.warmup_steps, 0, kMost,
          {"Raise the learning rate linearly in the first N steps; requires --lr-schedule", "0"});
  flags.integer<std::optional<int64_t>, int64_t>(
      "--check-replicas", o.train.check_replicas, 1, kMost,
      {"Compare the replicas' copies of all variables every N steps; requires --replicas 2 or more",
       "never"});
  flags.text("--torch-save", "FILE", o.train.torch_save,
             "Write the state_dict of the same PyTorch module to FILE at the end, as safetensors");
  flags.text("--log-dir", "DIR", o.train.log_dir,
             "Write losses, rates and bytes to DIR, as events for TensorBoard and metrics.csv");
  flags.integer<int64_t, int64_t>(
      "--log-histograms", o.train.log_histograms, 1, kMost,
      {"Write histograms of each weight as events every N steps; requires --log-dir", "never"});
  flags.integer<uint64_t, uint64_t>(
      "--seed", o.step.seed, 0, std::numeric_limits<uint64_t>::max(),
      {"Draw first weights, the samples' order and dropout from this seed", "0"});
}

}  // namespace sluice::tool
