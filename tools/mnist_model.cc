#include "tools/mnist_model.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "sluice/base/checked.h"
#include "sluice/base/sys.h"
#include "sluice/compiler/compile.h"

namespace sluice::tool {
namespace {

nn::Optimizer make_optimizer(const std::string& name) {
  if (name == "sgd") return nn::Optimizer::sgd();
  if (name == "momentum") return nn::Optimizer::sgd({.momentum = 0.9});
  if (name == "adam") return nn::Optimizer::adam();
  if (name == "adam-f16") return nn::Optimizer::adam_f16();
  if (name == "adamw") return nn::Optimizer::adamw();
  if (name == "adamax") return nn::Optimizer::adamax();
  if (name == "lamb") return nn::Optimizer::lamb();
  fail(ErrorKind::kUsage,
       "--optimizer: '{}' is not one of sgd, momentum, adam, adam-f16, adamw, adamax, lamb", name);
}

// A linear layer; GELU or ReLU and dropout after it unless it is the last.
class Layer : public nn::Module {
 public:
  enum class Activation { kGelu, kRelu };

  Layer(int64_t features, Activation activation, bool last, double dropout)
      : features_(features), activation_(activation), last_(last), dropout_(dropout) {}

  Tensor build(nn::Builder& b, Tensor x, const Tensors& seed) const {
    if (x.rank() > 2) x = ops::reshape(x, {x.dim(0), -1});
    const bool relu = activation_ == Activation::kRelu;
    const auto init = relu ? nn::WeightInit::kHe : nn::WeightInit::kSmall;
    x = nn::Linear(features_, nn::Bias::kAdd, init).build(b, x);
    if (last_) return x;
    x = relu ? ops::relu(x) : ops::gelu(x);
    return seed.empty() ? x : b.inlined("dropout", nn::Dropout(dropout_), x, seed[0]);
  }
  std::string cache_key() const {
    return fmt::format("{} {} {} {}", features_, static_cast<int>(activation_), last_, dropout_);
  }

 private:
  int64_t features_;
  Activation activation_;
  bool last_;
  double dropout_;
};

std::vector<train::Block> blocks(const ToolOptions& o, double dropout) {
  std::vector<train::Block> result;
  for (int64_t i = 0; i < o.layers; ++i) {
    const bool last = i + 1 == o.layers;
    const bool draws = dropout > 0 && !last;
    const auto activation = o.model == "mlp" ? Layer::Activation::kRelu : Layer::Activation::kGelu;
    result.emplace_back(fmt::format("fc.{}", i),
                        Layer(last ? 10 : o.width, activation, last, dropout),
                        draws ? train::Block::Draws::kYes : train::Block::Draws::kNo);
  }
  return result;
}

train::ModelSpec model_of(const ToolOptions& o) {
  return {.blocks = blocks(o, o.dropout),
          .input = {{o.micro_batch, 28, 28}, f32, {}},
          .labels = {{o.micro_batch}, i32, {}},
          .eval_input = {{o.eval_batch, 28, 28}, f32, {}},
          .eval_blocks = blocks(o, 0),
          .loss = [](const Tensor& logits, const Tensor& labels) {
            return ops::cross_entropy_with_grad(logits, labels);
          }};
}

void check_options(const ToolOptions& o) {
  require(o.layers >= 1 && o.layers <= 100000, "--layers: {} is outside [1, 100000]", o.layers);
  require(o.width >= 1, "--width: {} is below 1", o.width);
  require(o.dropout >= 0 && o.dropout < 1, "--dropout: {} is outside [0, 1)", o.dropout);
  require(o.micro_batch >= 1, "--micro-batch: {} is below 1", o.micro_batch);
  require(o.accumulate >= 1, "--accumulate: {} is below 1", o.accumulate);
  require(o.replicas >= 1 && o.replicas <= 1024, "--replicas: {} is outside [1, 1024]", o.replicas);
  SLUICE_CHECK(o.eval_batch >= 1);
  require(o.lr > 0, "--lr: {} is not positive", o.lr);
  require(o.clip_norm >= 0, "--clip-norm: {} is not 0 or more", o.clip_norm);
  require(o.clip_norm == 0 || o.strategy == "resident",
          "--clip-norm: --strategy {} updates a layer before all gradients are there; resident "
          "does not",
          o.strategy);
}

int64_t shard_threshold_of(const ToolOptions& o) {
  const std::string& text = o.shard_threshold;
  if (text == "inf") return nn::kNeverShard;
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  require(error == std::errc() && end == text.data() + text.size() && number >= 0,
          "--shard-threshold: '{}' is not a number of elements, nor inf", text);
  return number;
}

train::Strategy strategy_of(const ToolOptions& o) {
  return o.strategy == "phased" ? train::Strategy::kPhased : train::Strategy::kResident;
}

IoMode io_mode_of(const ToolOptions& o) {
  return o.io_mode == "compute" ? IoMode::kCompute
         : o.io_mode == "io"    ? IoMode::kIo
                                : IoMode::kIoOverlapped;
}

// "optimizer,weights" and the like. Error{kUsage} for other words and for what the strategy cannot move.
train::Offload parse_offload(const ToolOptions& o) {
  const bool phased = strategy_of(o) == train::Strategy::kPhased;
  train::Offload offload;
  std::set<std::string> words;
  for (size_t begin = 0; begin <= o.offload.size();) {
    const size_t end = std::min(o.offload.find(',', begin), o.offload.size());
    words.insert(o.offload.substr(begin, end - begin));
    begin = end + 1;
  }
  for (const std::string& word : words) {
    const bool in_phases = word == "weights" || word == "activations" || word == "accumulators";
    require(word == "optimizer" || in_phases || (word == "none" && words.size() == 1),
            "--offload: '{}' is not auto, none, or some of optimizer,weights,activations,"
            "accumulators",
            o.offload);
    require(!in_phases || phased, "--offload: {} leave the device with --strategy phased only",
            word);
    offload.optimizer = offload.optimizer || word == "optimizer";
    offload.weights = offload.weights || word == "weights";
  }
  require(o.remote != "none" || (offload == train::Offload{} && !phased),
          "--remote none: --offload {} and --strategy {} need remote memory (host or file:FOLDER)",
          o.offload, o.strategy);
  return offload;
}

MnistPrograms build(const ToolOptions& o, const train::Offload& offload) {
  MnistPrograms p;
  p.ir.set_replication(static_cast<int>(o.replicas));
  p.training = train::build_training(
      p.ir, model_of(o), make_optimizer(o.optimizer),
      {.strategy = strategy_of(o),
       .accumulate = o.accumulate,
       .offload = offload,
       .io_mode = io_mode_of(o),
       .activations = o.recompute ? train::Activations::kRecompute : train::Activations::kKeep,
       .shard_threshold = shard_threshold_of(o),
       .learning_rate = o.lr,
       .max_grad_norm = o.clip_norm > 0 ? std::optional(o.clip_norm) : std::nullopt,
       .seed = o.seed});
  if (!p.training.note.empty() && o.log_level != "error")
    sys::print_stderr("{}\n", p.training.note);
  return p;
}

// The refusal of a plan; empty if it fits. What it needs beyond the budget shows in its text.
std::string why_not(const ToolOptions& o, const train::Offload& offload) {
  ToolOptions quiet = o;
  quiet.log_level = "error";
  quiet.print_after.clear();
  try {
    compile(build(quiet, offload).ir, compile_options(session_options(quiet)));
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::kDoesNotFit) throw;
    return e.what();
  }
  return "";
}

MnistPrograms build_auto(const ToolOptions& o) {
  const auto tell = [&](const std::string& text) {
    if (o.log_level != "error") sys::print_stderr("offload: {}\n", text);
  };
  if (o.memory < 0) return build(o, {});
  const std::string without = why_not(o, {});
  const std::string reason = without.substr(0, without.find('\n'));
  if (without.empty()) {
    tell("none; the program fits --memory");
    return build(o, {});
  }
  const train::Offload state{.optimizer = true};
  const bool may_offload = o.remote != "none" && o.optimizer != "sgd";
  if (may_offload && why_not(o, state).empty()) {
    tell("optimizer; without it, " + reason);
    return build(o, state);
  }
  ToolOptions phased = o;
  phased.strategy = "phased";
  const bool would =
      o.remote != "none" && why_not(phased, {.optimizer = true, .weights = true}).empty();
  const char* const hint = would ? "\n  --strategy phased --offload optimizer,weights fits" : "";
  throw Error(ErrorKind::kDoesNotFit, without + hint);
}

}  // namespace

MnistPrograms build_mnist(const ToolOptions& o) {
  check_options(o);
  if (o.offload != "auto") return build(o, parse_offload(o));
  ToolOptions plain = o;
  plain.offload = "none";
  parse_offload(plain);
  return build_auto(o);
}

SessionOptions session_options(const ToolOptions& o) {
  return {.device = cpu_device({.memory = o.memory, .threads = static_cast<int>(o.threads)}),
          .group = o.group,
          .remote = o.remote == "none" ? "host" : o.remote,
          .remote_memory = o.remote_memory,
          .remote_bandwidth = o.remote_bandwidth,
          .remote_direct = o.remote_direct,
          .verify_remote = o.verify_remote,
          .io_queues = o.io_queues,
          .disable = o.disable,
          .print_after = o.print_after,
          .verify = o.verify};
}

std::string throttle_line(const ToolOptions& o) {
  return o.remote_bandwidth < 0
             ? ""
             : fmt::format("remote memory throttled to {} B/s\n", o.remote_bandwidth);
}

void add_throttle(const ToolOptions& o, JsonRecord& record) {
  if (o.remote_bandwidth >= 0) record.add("remote_bandwidth", o.remote_bandwidth);
}

int64_t samples_of_step(const ToolOptions& o) {
  return checked_mul(checked_mul(o.micro_batch, o.accumulate), o.replicas);
}

StepArrays::StepArrays(const ToolOptions& o)
    : image({entries_shape({o.micro_batch, 28, 28}, o.accumulate, o.replicas), f32, {}}),
      labels({entries_shape({o.micro_batch}, o.accumulate, o.replicas), i32, {}}),
      seeds({entries_shape({2}, o.accumulate, o.replicas), u32, {}}),
      losses({entries_shape({}, o.accumulate, o.replicas), f32, {}}) {}

void StepArrays::seed(uint64_t run_seed, int64_t update) {
  const Seed run{static_cast<uint32_t>(run_seed >> 32), static_cast<uint32_t>(run_seed)};
  const Seed key = fold(fold(run, "update"), static_cast<uint64_t>(update));
  const auto words = seeds.as<uint32_t>();
  for (size_t m = 0; 2 * m < words.size(); ++m) {
    const Seed micro_batch = fold(key, m);
    words[2 * m] = micro_batch.hi;
    words[2 * m + 1] = micro_batch.lo;
  }
}

std::vector<StreamInput> StepArrays::inputs(const train::Training& t) const {
  std::vector<StreamInput> result{{t.input, image}, {t.labels, labels}};
  if (t.draws) result.push_back({t.seed, seeds});
  return result;
}

}  // namespace sluice::tool
