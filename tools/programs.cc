#include "tools/programs.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "sluice/base/checked.h"
#include "sluice/base/sys.h"
#include "sluice/compiler/compile.h"
#include "tools/flags.h"

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
    {"nesterov",
     [] { return nn::Optimizer::sgd({.momentum = 0.9, .form = nn::SgdForm::kNesterov}); }, 0.005},
    {"adam", [] { return nn::Optimizer::adam(); }, 0.001},
    {"adam-f16", [] { return nn::Optimizer::adam_f16(); }, 0.001},
    {"adamw", [] { return nn::Optimizer::adamw(); }, 0.001},
    {"adamax", [] { return nn::Optimizer::adamax(); }, 0.002},
    {"lamb", [] { return nn::Optimizer::lamb(); }, 0.002},
    {"rmsprop", [] { return nn::Optimizer::rmsprop(); }, 0.001},
};

const NamedOptimizer& optimizer_of(const ToolOptions& o) {
  std::vector<std::string> names;
  for (const NamedOptimizer& row : kOptimizers) {
    if (row.name == o.train.optimizer) return row;
    names.emplace_back(row.name);
  }
  require_one_of("--optimizer", o.train.optimizer, names);
  fail(ErrorKind::kInternal, "--optimizer: '{}' has no row", o.train.optimizer);
}

// The words of --offload. Error{kUsage} for other words and for tensors that the strategy cannot
// move.
train::Offload parse_offload(const ToolOptions& o) {
  train::Offload offload;
  std::set<std::string> words;
  for (size_t begin = 0; begin <= o.offload.tensors.size();) {
    const size_t end = std::min(o.offload.tensors.find(',', begin), o.offload.tensors.size());
    words.insert(o.offload.tensors.substr(begin, end - begin));
    begin = end + 1;
  }
  for (const std::string& word : words) {
    require(word == "optimizer" || word == "weights" || (word == "none" && words.size() == 1),
            "--offload: must be auto, none, or some of optimizer,weights, got '{}'{}",
            o.offload.tensors,
            word == "activations"
                ? "; with --strategy phased, activations wait in remote memory anyway"
            : word == "accumulators" ? "; accumulators stay on the device"
                                     : "");
    require(word != "weights" || o.phased(),
            "--offload weights requires --strategy phased (it is resident)");
    offload.optimizer = offload.optimizer || word == "optimizer";
    offload.weights = offload.weights || word == "weights";
  }
  return offload;
}

Programs build(const ToolOptions& o, const train::Offload& offload) {
  const NamedOptimizer& optimizer = optimizer_of(o);
  train::StepOptions step = o.step;
  step.offload = offload;
  if (o.train.lr_schedule) {
    step.learning_rate = train::StreamedRate{};
  } else {
    step.learning_rate = o.train.lr.value_or(optimizer.rate);
  }
  Programs p;
  p.ir.set_replication(static_cast<int>(o.train.replicas));
  p.training = train::build_training(p.ir, models::find_model(o.model.name).build(o.model.sizes),
                                     optimizer.make(), step);
  if (!p.training.note.empty() && o.output.speaks()) sys::print_stderr("{}\n", p.training.note);
  return p;
}

// The refusal of a plan; empty if it fits. What it needs beyond the budget shows in its text.
std::string why_not(const ToolOptions& o, const train::Offload& offload) {
  ToolOptions quiet = o;
  quiet.output.log_level = LogLevel::kError;
  quiet.session.print_after.clear();
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
  if (o.phased())
    return {{.optimizer = has_state, .weights = true},
            "phases keep weights and state in remote memory unless --offload none is given"};
  if (o.offload.remote == "none") return {{}, "--remote none leaves no other memory"};
  if (o.session.device.memory < 0) return {{}, "device memory has no budget (--memory)"};
  const std::string without = why_not(o, {});
  if (without.empty()) return {{}, "the program fits --memory"};
  const train::Offload state{.optimizer = true};
  if (has_state && why_not(o, state).empty())
    return {state, "without it, " + without.substr(0, without.find('\n'))};
  ToolOptions phased = o;
  phased.step.strategy = train::Strategy::kPhased;
  // Phases cannot clip by the norm of all gradients.
  const bool would = !o.step.max_grad_norm && why_not(phased, choose(phased).offload).empty();
  throw Error(ErrorKind::kDoesNotFit, without + (would ? "\n  --strategy phased fits" : ""));
}

}  // namespace

std::string optimizer_names(std::string_view separator) {
  std::vector<std::string_view> names;
  for (const NamedOptimizer& row : kOptimizers) names.push_back(row.name);
  return fmt::format("{}", fmt::join(names, separator));
}

std::string offload_words(const train::Offload& offload) {
  return offload.optimizer ? offload.weights ? "optimizer,weights" : "optimizer"
         : offload.weights ? "weights"
                           : "none";
}

bool has_optimizer_state(const ToolOptions& o) { return optimizer_of(o).state; }

std::string default_rates() {
  std::string text;
  for (const NamedOptimizer& row : kOptimizers)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", row.name, row.rate);
  return text;
}

Programs build_programs(const ToolOptions& o) {
  const bool phased = o.phased();
  require(!phased || !o.step.max_grad_norm,
          "--clip-norm: --strategy phased updates a layer before all gradients are there; use "
          "--strategy resident");
  require(!phased || o.offload.remote != "none",
          "--strategy phased requires --remote host or file:DIR (it is none)");
  const Choice choice =
      o.offload.tensors == "auto" ? choose(o) : Choice{parse_offload(o), "given by --offload"};
  require(choice.offload == train::Offload{} || o.offload.remote != "none",
          "--offload {} requires --remote host or file:DIR (it is none)", o.offload.tensors);
  Programs programs = build(o, choice.offload);
  programs.offload = choice.offload;
  programs.offload_reason = choice.reason;
  return programs;
}

std::string offload_line(const Programs& programs) {
  return fmt::format("offload: {}; {}\n", offload_words(programs.offload), programs.offload_reason);
}

void log_offload(const ToolOptions& o, const Programs& programs) {
  if (o.offload.tensors == "auto" && o.output.speaks()) sys::write_stderr(offload_line(programs));
}

void add_offload(const Programs& programs, JsonRecord& record) {
  record.add("offload", offload_words(programs.offload));
  record.add("offload_reason", programs.offload_reason);
}

SessionOptions session_options(const ToolOptions& o) {
  SessionOptions options = o.session;
  if (o.offload.remote != "none") options.remote = o.offload.remote;
  return options;
}

train::LearningRateSchedule schedule_of(const ToolOptions& o, int64_t steps) {
  return {.decay = o.train.lr_schedule.value_or(train::Decay::kConstant),
          .peak = o.train.lr.value_or(optimizer_of(o).rate),
          .warmup_steps = o.train.warmup_steps,
          .steps = steps};
}

std::string throttle_line(const ToolOptions& o) {
  return o.session.remote_bandwidth < 0
             ? ""
             : fmt::format("remote memory throttled to {} B/s\n", o.session.remote_bandwidth);
}

void add_throttle(const ToolOptions& o, JsonRecord& record) {
  if (o.session.remote_bandwidth >= 0) record.add("remote_bandwidth", o.session.remote_bandwidth);
}

std::string passes_text(const Compiled& compiled) {
  std::string text;
  for (const PassRecord& pass : compiled.passes) {
    const std::string effect =
        pass.enabled ? fmt::format("{:8.3f} ms {:>6} changes", pass.seconds * 1e3, pass.changes)
                     : fmt::format("{:>26}", "disabled");
    text += fmt::format("pass {:<13} {}  {}\n", pass.name, effect, pass.reason);
  }
  return text;
}

std::string fusions_text(const Compiled& compiled) {
  std::string text;
  for (const auto& [name, count] : compiled.fusions.made)
    text += fmt::format("fused     {:>5} x {}\n", count, name);
  for (const auto& [why, count] : compiled.fusions.refused)
    text += fmt::format("not fused {:>5} x {}\n", count, why);
  return text;
}

int64_t samples_of_step(const ToolOptions& o) {
  return checked_mul(checked_mul(o.model.sizes.micro_batch, o.step.accumulate), o.train.replicas);
}

}  // namespace sluice::tool
