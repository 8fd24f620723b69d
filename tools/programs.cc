#include "tools/programs.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "sluice/base/checked.h"
#include "sluice/base/sys.h"
#include "sluice/compiler/compile.h"

namespace sluice::tool {
namespace {

struct NamedOptimizer {
  std::string_view name;
  nn::Optimizer (*make)();
  double rate;        // The learning rate unless --lr is given.
  bool state = true;  // Whether it keeps state.
};

// With momentum 0.9, each gradient acts ten times as much in the end. Adamax has the rate of its
// authors. LAMB diverges in deep networks from 0.003 on.
constexpr NamedOptimizer kOptimizers[] = {
    {"sgd", [] { return nn::Optimizer::sgd(); }, 0.05, false},
    {"momentum", [] { return nn::Optimizer::sgd({.momentum = 0.9}); }, 0.005},
    {"adam", [] { return nn::Optimizer::adam(); }, 0.001},
    {"adam-f16", [] { return nn::Optimizer::adam_f16(); }, 0.001},
    {"adamw", [] { return nn::Optimizer::adamw(); }, 0.001},
    {"adamax", [] { return nn::Optimizer::adamax(); }, 0.002},
    {"lamb", [] { return nn::Optimizer::lamb(); }, 0.002},
};

const NamedOptimizer& optimizer_of(const ToolOptions& o) {
  std::vector<std::string_view> names;
  for (const NamedOptimizer& row : kOptimizers) {
    if (row.name == o.optimizer) return row;
    names.push_back(row.name);
  }
  fail(ErrorKind::kUsage, "--optimizer: '{}' is not one of {}", o.optimizer,
       fmt::join(names, ", "));
}

void check_options(const ToolOptions& o) {
  require(o.sizes.dropout >= 0 && o.sizes.dropout < 1, "--dropout: {} is outside [0, 1)",
          o.sizes.dropout);
  SLUICE_CHECK(o.sizes.eval_batch >= 1);
  require(o.lr.value_or(1) > 0, "--lr: {} is not positive", o.lr.value_or(1));
  require(o.clip_norm >= 0, "--clip-norm: {} is not 0 or more", o.clip_norm);
  require(o.clip_norm == 0 || o.strategy == "resident",
          "--clip-norm: --strategy {} updates a layer before all gradients are there; resident "
          "does not",
          o.strategy);
}

train::Strategy strategy_of(const ToolOptions& o) {
  return o.strategy == "phased" ? train::Strategy::kPhased : train::Strategy::kResident;
}

IoMode io_mode_of(const ToolOptions& o) {
  return o.io_mode == "compute" ? IoMode::kCompute
         : o.io_mode == "io"    ? IoMode::kIo
                                : IoMode::kIoOverlapped;
}

// The words of --offload. Error{kUsage} for other words and for tensors that the strategy cannot
// move.
train::Offload parse_offload(const ToolOptions& o) {
  train::Offload offload;
  std::set<std::string> words;
  for (size_t begin = 0; begin <= o.offload.size();) {
    const size_t end = std::min(o.offload.find(',', begin), o.offload.size());
    words.insert(o.offload.substr(begin, end - begin));
    begin = end + 1;
  }
  for (const std::string& word : words) {
    require(word == "optimizer" || word == "weights" || (word == "none" && words.size() == 1),
            "--offload: must be auto, none, or some of optimizer,weights, got '{}'{}", o.offload,
            word == "activations"
                ? "; with --strategy phased, activations wait in remote memory anyway"
            : word == "accumulators" ? "; accumulators stay on the device"
                                     : "");
    require(word != "weights" || strategy_of(o) == train::Strategy::kPhased,
            "--offload: weights require --strategy phased (it is {})", o.strategy);
    offload.optimizer = offload.optimizer || word == "optimizer";
    offload.weights = offload.weights || word == "weights";
  }
  return offload;
}

std::string text_of(const train::Offload& offload) {
  return offload.optimizer ? offload.weights ? "optimizer,weights" : "optimizer"
         : offload.weights ? "weights"
                           : "none";
}

Programs build(const ToolOptions& o, const train::Offload& offload) {
  const NamedOptimizer& optimizer = optimizer_of(o);
  Programs p;
  p.ir.set_replication(static_cast<int>(o.replicas));
  p.training = train::build_training(
      p.ir, models::find_model(o.model).build(o.sizes), optimizer.make(),
      {.strategy = strategy_of(o),
       .accumulate = o.accumulate,
       .offload = offload,
       .io_mode = io_mode_of(o),
       .activations = o.recompute ? train::Activations::kRecompute : train::Activations::kKeep,
       .shard_threshold = o.shard_threshold,
       .learning_rate = o.lr.value_or(optimizer.rate),
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

struct Choice {
  train::Offload offload;
  std::string reason;
};

// The first offload that fits. Error{kDoesNotFit} if none does.
Choice choose(const ToolOptions& o) {
  const bool has_state = optimizer_of(o).state;
  if (strategy_of(o) == train::Strategy::kPhased)
    return {{.optimizer = has_state, .weights = true},
            "phases keep weights and state in remote memory unless --offload none is given"};
  if (o.remote == "none") return {{}, "--remote none leaves no other memory"};
  if (o.memory < 0) return {{}, "device memory has no budget (--memory)"};
  const std::string without = why_not(o, {});
  if (without.empty()) return {{}, "the program fits --memory"};
  const train::Offload state{.optimizer = true};
  if (has_state && why_not(o, state).empty())
    return {state, "without it, " + without.substr(0, without.find('\n'))};
  ToolOptions phased = o;
  phased.strategy = "phased";
  // Phases cannot clip by the norm of all gradients.
  const bool would = o.clip_norm == 0 && why_not(phased, choose(phased).offload).empty();
  throw Error(ErrorKind::kDoesNotFit, without + (would ? "\n  --strategy phased fits" : ""));
}

}  // namespace

std::string default_rates() {
  std::string text;
  for (const NamedOptimizer& row : kOptimizers)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", row.name, row.rate);
  return text;
}

Programs build_programs(const ToolOptions& o) {
  check_options(o);
  const bool phased = strategy_of(o) == train::Strategy::kPhased;
  require(!phased || o.remote != "none",
          "--strategy phased requires --remote host or file:FOLDER (it is none)");
  const Choice choice =
      o.offload == "auto" ? choose(o) : Choice{parse_offload(o), "given by --offload"};
  require(choice.offload == train::Offload{} || o.remote != "none",
          "--offload {} requires --remote host or file:FOLDER (it is none)", o.offload);
  Programs programs = build(o, choice.offload);
  programs.offload = text_of(choice.offload);
  programs.offload_reason = choice.reason;
  return programs;
}

std::string offload_line(const Programs& programs) {
  return fmt::format("offload: {}; {}\n", programs.offload, programs.offload_reason);
}

void log_offload(const ToolOptions& o, const Programs& programs) {
  if (o.offload == "auto" && o.log_level != "error") sys::write_stderr(offload_line(programs));
}

void add_offload(const Programs& programs, JsonRecord& record) {
  record.add("offload", programs.offload);
  record.add("offload_reason", programs.offload_reason);
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
  return checked_mul(checked_mul(o.sizes.micro_batch, o.accumulate), o.replicas);
}

}  // namespace sluice::tool
