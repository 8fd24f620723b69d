#include "sluice/nn/update/optimizers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "sluice/base/checked.h"
#include "sluice/base/numbers/number_text.h"
#include "sluice/base/provenance.h"
#include "sluice/ir/provenance_scope.h"
#include "sluice/nn/remote.h"
#include "sluice/nn/update/rules.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/cast.h"
#include "sluice/ops/updates.h"

namespace sluice::nn {
namespace {

const TensorSpec kScalar{{}, f32, {}};

// Returns whether `t` is a shard of `whole`. Equal shapes do not suffice: a shard of a tensor with
// one element has the shape of the tensor.
bool is_shard_of(const Tensor& t, const Tensor& whole) {
  return !t.meta_shape().empty() && whole.meta_shape().empty() && t.meta_shape() == whole.shape();
}

SgdStep step_of(const SgdOptions& o, GradScale scale, const ops::Group&) {
  return SgdStep(o, scale);
}
AdamStep step_of(const AdamOptions& o, GradScale scale, const ops::Group& group) {
  return AdamStep(o, scale, group);
}
RmspropStep step_of(const RmspropOptions& o, GradScale scale, const ops::Group&) {
  return RmspropStep(o, scale);
}

CustomStep step_of(const CustomUpdate& o, GradScale scale, const ops::Group& group) {
  return CustomStep(o, scale, group);
}

// Whether `pattern` describes all of `text`; `*` represents any characters. If the rest does not
// fit, the last star takes one more character.
bool describes(std::string_view pattern, std::string_view text) {
  size_t p = 0, t = 0, after_star = pattern.npos, retry = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      after_star = ++p;
      retry = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p;
      ++t;
    } else if (after_star != pattern.npos) {
      p = after_star;
      t = ++retry;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == pattern.npos;
}

bool any_describes(const std::vector<std::string>& patterns, std::string_view key) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& pattern) { return describes(pattern, key); });
}

// One variable to update, with its gradient and its parameter group.
struct Target {
  std::string key;
  Tensor variable;
  Tensor gradient;
  std::shared_ptr<const VariableInfo> info;
  size_t group = 0;
};

// Returns the variables that are in a parameter group, in alphabetical order of keys.
std::vector<Target> targets_of(const Optimizer& optimizer, Graph& main,
                               const NamedTensors& variables, const NamedTensors& grads) {
  std::vector<Target> targets;
  const auto [keys, parameters] = variables.unpack();
  for (size_t i = 0; i < keys.size(); ++i) {
    const auto variable = main.owns(parameters[i]) ? main.info(parameters[i]).variable : nullptr;
    require(variable != nullptr, "optimizer: '{}' is not a variable of graph {}", keys[i],
            main.name());
    const std::optional<size_t> group = optimizer.group_of(keys[i]);
    if (!group) continue;
    const Tensor* gradient = grads.find_leaf(keys[i]);
    if (gradient == nullptr) {
      fail(ErrorKind::kUsage, "optimizer: variable '{}' has no gradient; gradients are {}", keys[i],
           internal::join_keys(grads.keys_flat()));
    }
    require(gradient->shape() == parameters[i].shape() || is_shard_of(*gradient, parameters[i]),
            "optimizer: gradient of variable '{}' must have the shape of {}, got {}", keys[i],
            to_string(parameters[i].spec()), to_string(gradient->spec()));
    targets.push_back({keys[i], parameters[i], *gradient, variable, *group});
  }
  return targets;
}

}  // namespace

KeyMatch keys_like(std::vector<std::string> patterns) {
  std::string text = fmt::format("keys_like({})", internal::join_keys(patterns));
  return {[patterns = std::move(patterns)](std::string_view key) {
            return any_describes(patterns, key);
          },
          std::move(text)};
}

KeyMatch keys_unlike(std::vector<std::string> patterns) {
  std::string text = fmt::format("keys_unlike({})", internal::join_keys(patterns));
  return {[patterns = std::move(patterns)](std::string_view key) {
            return !any_describes(patterns, key);
          },
          std::move(text)};
}

Optimizer::Optimizer(UpdateRule rule) {
  groups_.push_back({{}, internal::checked(std::move(rule))});
}

Optimizer Optimizer::grouped(const std::vector<ParameterGroup>& groups) {
  require(!groups.empty(), "optimizer: requires at least one parameter group, got none");
  std::vector<Group> made;
  for (const ParameterGroup& group : groups) {
    require(group.match != nullptr, "optimizer: parameter group {} requires a match, got none",
            made.size());
    const Group& own = group.optimizer.groups_[0];
    require(own.match == nullptr,
            "optimizer: the optimizer of parameter group {} must be without groups; list its "
            "groups instead",
            made.size());
    internal::check_hyper("rate_factor", group.rate_factor);
    made.push_back({group.match, own.rule, group.rate_factor});
  }
  return Optimizer(std::move(made));
}

std::optional<size_t> Optimizer::group_of(std::string_view key) const {
  std::optional<size_t> found;
  for (size_t i = 0; i < groups_.size(); ++i) {
    if (groups_[i].match != nullptr && !groups_[i].match(key)) continue;
    require(!found,
            "optimizer: variable '{}' must be in at most one parameter group, got {} and {}; make "
            "their matches disjoint",
            key, *found, i);
    found = i;
  }
  return found;
}

void Optimizer::check_groups(const std::vector<std::string>& keys) const {
  for (size_t i = 0; i < groups_.size(); ++i) {
    const KeyMatch& match = groups_[i].match;
    if (match == nullptr || std::any_of(keys.begin(), keys.end(), match)) continue;
    fail(ErrorKind::kUsage,
         "optimizer: parameter group {}, {}, must match a variable, got none; variables are {}", i,
         match.text(), internal::join_keys(keys));
  }
}

const Optimizer::Group& Optimizer::group_at(std::optional<size_t> index) const {
  require(index || groups_[0].match == nullptr,
          "optimizer: with parameter groups, an update must name its group, got none; use "
          "group_of()");
  SLUICE_CHECK(index.value_or(0) < groups_.size());
  return groups_[index.value_or(0)];
}

const GraphCache::Made& Optimizer::step_graph(Ir ir, const TensorSpec& variable,
                                              const TensorSpec& grad, GradScale scale,
                                              const ops::Group& group,
                                              std::optional<size_t> parameter_group) {
  const NamedInput variable_input{"variable", variable, Pass::kByReference};
  const NamedInput grad_input{"grad", grad};
  const NamedInput step_input{"step_size", kScalar};
  std::vector<NamedInput> scale_input;
  if (scale == GradScale::kInput) scale_input.push_back({"grad_scale", kScalar});
  const UpdateRule& rule = group_at(parameter_group).rule;
  const std::vector<NamedInput> hyper_inputs = internal::hyper_inputs(rule);
  return std::visit(
      [&](const auto& o) -> const GraphCache::Made& {
        return cache_.create_graph(ir, step_of(o, scale, group), variable_input, grad_input,
                                   step_input, scale_input, hyper_inputs);
      },
      rule);
}

Tensor Optimizer::step_size(Graph& graph, const ops::HyperArg& learning_rate,
                            std::optional<size_t> parameter_group) const {
  const ops::HyperArg& factor = group_at(parameter_group).rate_factor;
  if (learning_rate.tensor() == nullptr) {
    const double rate = learning_rate.number();
    require(std::isfinite(static_cast<float>(rate)),
            "optimizer: the learning rate must be a finite float32, got {}", number_text(rate));
  }
  if (learning_rate.tensor() == nullptr && factor.tensor() == nullptr)
    return graph.scalar(-(learning_rate.number() * factor.number()), f32, "step_size");
  if (learning_rate.tensor() == nullptr) return *factor.tensor() * -learning_rate.number();
  const Tensor rate = -*learning_rate.tensor();
  if (factor.tensor() != nullptr) return rate * *factor.tensor();
  return factor.number() == 1 ? rate : rate * factor.number();
}

double Optimizer::default_learning_rate() const {
  const double rate = internal::default_learning_rate(groups_[0].rule);
  for (const Group& group : groups_) {
    const double other = internal::default_learning_rate(group.rule);
    require(other == rate,
            "optimizer: parameter groups must have one default learning rate, got {} and {}; set "
            "the learning rate, and rate_factor of the groups",
            rate, other);
  }
  return rate;
}

Tensors Optimizer::hypers(std::optional<size_t> parameter_group, const Tensors& streamed) const {
  return internal::hyper_tensors(group_at(parameter_group).rule, streamed);
}

std::vector<StreamedCoefficient> Optimizer::streamed() const {
  std::vector<StreamedCoefficient> all;
  for (size_t g = 0; g < groups_.size(); ++g) {
    for (StreamedCoefficient& c : internal::streamed_coefficients(groups_[g].rule)) {
      c.group = g;
      all.push_back(std::move(c));
    }
  }
  return all;
}

bool Optimizer::has_state() const {
  return std::any_of(groups_.begin(), groups_.end(), [](const Group& group) {
    const auto* const sgd = std::get_if<SgdOptions>(&group.rule);
    return sgd == nullptr || !internal::is_zero(sgd->momentum);
  });
}

std::string Optimizer::rules() const {
  constexpr const char* kNames[] = {"sgd", "adam", "rmsprop", "custom"};
  std::string text;
  for (const Group& group : groups_) {
    const std::string options = std::visit(
        [](const auto& o) { return step_of(o, GradScale::kNone, {}).cache_key(); }, group.rule);
    const ops::HyperArg& factor = group.rate_factor;
    text += fmt::format("{}{}({}) rate {}", text.empty() ? "" : "; ", kNames[group.rule.index()],
                        options,
                        factor.tensor() == nullptr ? fmt::format("{}", factor.number())
                                                   : std::string("from a tensor"));
  }
  return text;
}

NamedTensors Optimizer::apply(Graph& main, const NamedTensors& variables, const NamedTensors& grads,
                              const ops::HyperArg& learning_rate, const UpdateOptions& options) {
  const std::vector<Target> targets = targets_of(*this, main, variables, grads);
  check_groups(variables.keys_flat());
  NamedTensors states;
  if (targets.empty()) return states;

  std::vector<Tensor> step_sizes(groups_.size());
  Tensors gradients;
  std::vector<ops::Group> replicas;
  for (const Target& t : targets) {
    Tensor& step = step_sizes[t.group];
    if (!step.valid()) step = step_size(main, learning_rate, t.group);
    gradients.push_back(t.gradient);
    replicas.push_back(t.info->group);
  }
  Tensors scale;
  const Graph::ProvenanceScope norm(main, {.role = OpRole::kNorm});
  if (options.max_grad_norm)
    scale.push_back(clip_factor(global_norm(gradients, cache_, replicas), *options.max_grad_norm));
  internal::PathCounts made(main.ir());
  for (const Target& t : targets) {
    const Graph::ProvenanceScope of(main, {.role = OpRole::kUpdate, .variable = t.key});
    // A replica updates only the shard for which it has the gradient.
    const bool in_shards = is_shard_of(t.gradient, t.variable);
    const Tensor target =
        in_shards ? ops::replica_sharded_slice(t.variable, t.info->group) : t.variable;
    VariableInfo like = *t.info;
    if (in_shards) like.shard = shard_count(main.ir(), t.variable.spec(), {0, t.info->group});
    require(target.shape() == t.gradient.shape(),
            "optimizer: gradient of the shard of variable '{}' must have the shape of {}, got {}",
            t.key, to_string(target.spec()), to_string(t.gradient.spec()));
    const auto& [factories, step] =
        step_graph(main.ir(), target.spec(), t.gradient.spec(),
                   scale.empty() ? GradScale::kNone : GradScale::kInput, t.info->group, t.group);
    NamedVariableFactories own;
    factories.for_each([&](const std::string& name, const VariableFactory& factory) {
      own.merge(name, factory.as_state_of(target.spec(), like));
    });
    const InitOptions init{.prefix = t.info->path};
    NamedRemoteBuffers buffers;
    NamedTensors state;
    if (options.remote_state) {
      buffers = named_variable_buffers(main.ir(), own);
      state = own.init_remote(main, buffers, 0, init, made);
    } else {
      state = own.init(main, init, made);
    }
    const NamedTensors local = options.remote_state ? load_remote(main, buffers) : state;
    step.bind(local).call(target, t.gradient, step_sizes[t.group], scale, hypers(t.group));
    store_remote(main, buffers, local);
    if (in_shards) {
      ops::copy_var_update_(t.variable, gather_replica_sharded_tensor(target, t.info->group));
    }
    state.for_each(
        [&](const std::string& name, const Tensor& s) { states.merge(t.key + "." + name, s); });
  }
  return states;
}

NamedTensors Optimizer::apply(Graph& main, const NamedTensors& variables,
                              const std::unordered_map<Tensor, Tensor>& grads,
                              const ops::HyperArg& learning_rate, const UpdateOptions& options) {
  NamedTensors named;
  variables.for_each([&](const std::string& key, const Tensor& variable) {
    if (const auto found = grads.find(variable); found != grads.end())
      named.merge(key, found->second);
  });
  return apply(main, variables, named, learning_rate, options);
}

}  // namespace sluice::nn
