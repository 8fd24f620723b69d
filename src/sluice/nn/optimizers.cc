#include "sluice/nn/optimizers.h"

#include <algorithm>
#include <cmath>

#include "sluice/base/checked.h"
#include "sluice/nn/remote.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/cast.h"
#include "sluice/ops/reductions.h"
#include "sluice/ops/reshape.h"
#include "sluice/ops/slice.h"
#include "sluice/ops/updates.h"

namespace sluice::nn {
namespace {

const TensorSpec kScalar{{}, f32, {}};

// Returns the gradient, multiplied by the scale in float32 if there is one.
Tensor scaled(const Tensor& grad, const Tensors& grad_scale) {
  return grad_scale.empty() ? grad : ops::cast(grad, f32) * grad_scale[0];
}

// Returns g + weight_decay·w in float32, or g if there is no weight decay.
Tensor decayed(const Tensor& grad, const Tensor& variable, double weight_decay) {
  if (weight_decay == 0) return grad;
  return ops::scaled_add(ops::cast(grad, f32), variable, 1.0, weight_decay);
}

Tensor state_like(Builder& b, const std::string& name, const Tensor& variable, DType dtype) {
  TensorSpec spec = variable.spec();
  spec.dtype = dtype;
  return b.add_variable_input(name, VariableFactory(spec, zeros(), Pass::kByReference));
}

void check(bool good, std::string_view name, double value, std::string_view range) {
  require(good, "optimizer: {} must be {}, got {}", name, range, value);
}

void check_decay(std::string_view name, double value) {
  check(value >= 0 && value < 1, name, value, "in [0, 1)");
}

void check_options(const SgdOptions& o) {
  check_decay("momentum", o.momentum);
  check(o.weight_decay >= 0, "weight_decay", o.weight_decay, "at least 0");
}

void check_options(const AdamOptions& o) {
  check_decay("beta1", o.beta1);
  check_decay("beta2", o.beta2);
  check(o.epsilon > 0, "epsilon", o.epsilon, "above 0");
  check(o.weight_decay >= 0, "weight_decay", o.weight_decay, "at least 0");
  check(o.max_weight_norm > 0, "max_weight_norm", o.max_weight_norm, "above 0");
  require(o.form != AdamForm::kAdamax || o.bias_correction == BiasCorrection::kOn,
          "optimizer: Adamax requires bias correction");
}

// Returns the sums of squares of the chunks of the whole tensor, in order, without empty chunks.
// Members of the group exchange the sums of shards.
Tensors chunk_squares(const Tensor& t, const ops::Group& group) {
  const Tensor flat = ops::flatten(ops::cast(t, f32));
  const int replicas = t.graph().ir().fix_replication("a norm");
  const int count = group ? group->size() : replicas;
  const bool shard = !t.meta_shape().empty();
  const int64_t elements = shard ? t.meta_shape().elements() : t.elements();
  const int64_t size = ceil_div(elements, count);
  require(!shard || t.elements() == size,
          "norm: '{}', a shard of {} over {} replicas, must have {} elements, got {}", t.name(),
          to_string(t.meta_shape()), count, size, t.elements());
  if (count == 1) return {ops::sumsquare(flat)};
  Tensors result;
  Tensor shares;
  if (shard)
    shares = ops::replicated_all_gather(ops::sumsquare(flat), 0, group, ops::Gather::kNewAxis);
  for (int64_t begin = 0; begin < elements; begin += size) {
    const auto chunk = static_cast<int64_t>(result.size());
    result.push_back(
        shard ? ops::reshape(ops::slice(shares, {chunk}, {chunk + 1}), {})
              : ops::sumsquare(ops::slice(flat, {begin}, {std::min(begin + size, elements)})));
  }
  return result.empty() ? Tensors{ops::sumsquare(flat)} : result;
}

// Returns whether `t` is a shard of `whole`. Equal shapes do not suffice: a shard of a tensor with
// one element has the shape of the tensor.
bool is_shard_of(const Tensor& t, const Tensor& whole) {
  return !t.meta_shape().empty() && whole.meta_shape().empty() && t.meta_shape() == whole.shape();
}

std::string key_of(const ops::Group& group) { return group ? to_string(*group) : "all"; }

class ChunkSquares : public Module {
 public:
  explicit ChunkSquares(const ops::Group& group) : group_(group) {}
  Tensors build(Builder&, Tensor t) const { return chunk_squares(t, group_); }
  std::string cache_key() const { return key_of(group_); }

 private:
  ops::Group group_;
};

}  // namespace

void SgdStep::build(Builder& b, Tensor variable, Tensor grad, Tensor step_size,
                    const Tensors& grad_scale) const {
  const Tensor g = scaled(grad, grad_scale);
  if (options_.momentum == 0) {
    ops::scaled_add_(variable, decayed(g, variable, options_.weight_decay), 1.0, step_size);
    return;
  }
  Tensor m = state_like(b, "momentum", variable, f32);
  m = ops::scaled_add_(m, g, options_.momentum, 1.0);
  if (options_.weight_decay != 0) m = ops::accumulate_(m, variable, options_.weight_decay);
  ops::scaled_add_(variable, m, 1.0, step_size);
}

std::string SgdStep::cache_key() const {
  return fmt::format("{} {} {}", options_.momentum, options_.weight_decay,
                     static_cast<int>(scale_));
}

void AdamStep::build(Builder& b, Tensor variable, Tensor grad, Tensor step_size,
                     const Tensors& grad_scale) const {
  const AdamOptions& o = options_;
  Tensor g = scaled(grad, grad_scale);
  if (o.decay == WeightDecay::kInGradient) g = decayed(g, variable, o.weight_decay);
  Tensor m = state_like(b, "first_order", variable, o.first_order_dtype);
  Tensor v = state_like(b, "second_order", variable, f32);
  ops::AdamUpdaterArgs args{.beta1 = o.beta1, .beta2 = o.beta2, .epsilon = o.epsilon};
  if (o.bias_correction == BiasCorrection::kOn) {
    args.time_step = b.add_variable_input("step", zeros(), {}, f32, Pass::kByReference);
  }
  if (o.decay == WeightDecay::kDecoupled && o.weight_decay != 0) {
    args.weight = variable;
    args.weight_decay = o.weight_decay;
  }
  m = ops::accumulate_moving_average_(m, g, o.beta1);
  Tensor update;
  if (o.form == AdamForm::kAdamax) {
    v = ops::accumulate_infinity_(v, g, o.beta2);
    update = ops::adamax_updater(m, v, args);
  } else {
    v = ops::accumulate_moving_average_square_(v, g, o.beta2);
    update = ops::adam_updater(m, v, args);
  }
  if (o.form == AdamForm::kLamb) {
    const Tensor weight_square = squared_norm(variable, group_);
    const Tensor update_square = squared_norm(update, group_);
    ops::adam_var_update(variable, update, weight_square, update_square, -step_size,
                         o.max_weight_norm);
  } else {
    ops::scaled_add_(variable, update, 1.0, step_size);
  }
}

std::string AdamStep::cache_key() const {
  const AdamOptions& o = options_;
  return fmt::format("{} {} {} {} {} {} {} {} {} {} {}", o.beta1, o.beta2, o.epsilon,
                     o.weight_decay, static_cast<int>(o.decay), static_cast<int>(o.bias_correction),
                     name_of(o.first_order_dtype), static_cast<int>(o.form), o.max_weight_norm,
                     static_cast<int>(scale_), key_of(group_));
}

Tensor squared_norm(const Tensor& t, const ops::Group& group) {
  const Tensors squares = chunk_squares(t, group);
  Tensor total = squares[0];
  for (size_t chunk = 1; chunk < squares.size(); ++chunk) total = total + squares[chunk];
  return total;
}

Tensor global_norm(const Tensors& tensors, GraphCache& cache,
                   const std::vector<ops::Group>& groups) {
  require(!tensors.empty(), "global_norm: requires at least one tensor, got none");
  SLUICE_CHECK(groups.empty() || groups.size() == tensors.size());
  const Ir ir = tensors[0].graph().ir();
  std::vector<Tensors> squares;
  size_t most = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const ChunkSquares share(groups.empty() ? std::nullopt : groups[i]);
    squares.push_back(cache.create_graph(ir, share, tensors[i]).second.call(tensors[i]));
    most = std::max(most, squares.back().size());
  }
  Tensor total;
  for (size_t chunk = 0; chunk < most; ++chunk) {
    for (const Tensors& s : squares) {
      if (chunk < s.size()) total = total.valid() ? total + s[chunk] : s[chunk];
    }
  }
  return ops::sqrt(total);
}

Tensor clip_factor(const Tensor& norm, double max_norm) {
  const auto most = static_cast<float>(max_norm);
  require(most > 0 && std::isfinite(most),
          "clip_factor: the largest norm must be a float32 above 0, got {}", max_norm);
  return max_norm / ops::maximum(norm, ops::scalar_like(norm, max_norm));
}

const GraphCache::Made& Optimizer::step_graph(Ir ir, const TensorSpec& variable,
                                              const TensorSpec& grad, GradScale scale,
                                              const ops::Group& group) {
  const NamedInput variable_input{"variable", variable, Pass::kByReference};
  const NamedInput grad_input{"grad", grad};
  const NamedInput step_input{"step_size", kScalar};
  std::vector<NamedInput> scale_input;
  if (scale == GradScale::kInput) scale_input.push_back({"grad_scale", kScalar});
  const auto make = [&](const auto& step) -> const GraphCache::Made& {
    return cache_.create_graph(ir, step, variable_input, grad_input, step_input, scale_input);
  };
  if (const SgdOptions* o = std::get_if<SgdOptions>(&options_)) return make(SgdStep(*o, scale));
  return make(AdamStep(std::get<AdamOptions>(options_), scale, group));
}

Optimizer::Optimizer(std::variant<SgdOptions, AdamOptions> options) : options_(options) {
  std::visit([](const auto& o) { check_options(o); }, options_);
}

NamedTensors Optimizer::apply(Graph& main, const NamedTensors& variables, const NamedTensors& grads,
                              const ops::HyperArg& learning_rate, const UpdateOptions& options) {
  const auto [keys, parameters] = variables.unpack();
  Tensors gradients;
  std::vector<ops::Group> groups;
  for (size_t i = 0; i < keys.size(); ++i) {
    const auto variable = main.owns(parameters[i]) ? main.info(parameters[i]).variable : nullptr;
    require(variable != nullptr, "optimizer: '{}' is not a variable of graph {}", keys[i],
            main.name());
    groups.push_back(variable->group);
    const Tensor* gradient = grads.find_leaf(keys[i]);
    if (gradient == nullptr) {
      fail(ErrorKind::kUsage, "optimizer: variable '{}' has no gradient; gradients are {}", keys[i],
           internal::join_keys(grads.keys_flat()));
    }
    gradients.push_back(*gradient);
    require(gradient->shape() == parameters[i].shape() || is_shard_of(*gradient, parameters[i]),
            "optimizer: gradient of variable '{}' must have the shape of {}, got {}", keys[i],
            to_string(parameters[i].spec()), to_string(gradient->spec()));
  }
  NamedTensors states;
  if (keys.empty()) return states;

  const Tensor step_size = learning_rate.tensor() != nullptr
                               ? -*learning_rate.tensor()
                               : main.scalar(-learning_rate.number(), f32, "step_size");
  Tensors scale;
  if (options.max_grad_norm)
    scale.push_back(clip_factor(global_norm(gradients, cache_, groups), *options.max_grad_norm));
  internal::PathCounts made(main.ir());
  for (size_t i = 0; i < keys.size(); ++i) {
    const auto variable = main.info(parameters[i]).variable;
    // A replica updates only the shard for which it has the gradient.
    const bool in_shards = is_shard_of(gradients[i], parameters[i]);
    const Tensor target =
        in_shards ? ops::replica_sharded_slice(parameters[i], variable->group) : parameters[i];
    VariableInfo like = *variable;
    if (in_shards) like.shard = shard_count(main.ir(), parameters[i].spec(), {0, variable->group});
    require(target.shape() == gradients[i].shape(),
            "optimizer: gradient of the shard of variable '{}' must have the shape of {}, got {}",
            keys[i], to_string(target.spec()), to_string(gradients[i].spec()));
    const auto& [factories, step] =
        step_graph(main.ir(), target.spec(), gradients[i].spec(),
                   scale.empty() ? GradScale::kNone : GradScale::kInput, groups[i]);
    NamedVariableFactories own;
    factories.for_each([&](const std::string& name, const VariableFactory& factory) {
      own.merge(name, factory.beside(target.spec(), like));
    });
    const InitOptions place{.prefix = variable->path};
    NamedRemoteBuffers buffers;
    NamedTensors state;
    if (options.remote_state) {
      buffers = named_variable_buffers(main.ir(), own);
      state = own.init_remote(main, buffers, 0, place, made);
    } else {
      state = own.init(main, place, made);
    }
    const NamedTensors local = options.remote_state ? load_remote(main, buffers) : state;
    step.bind(local).call(target, gradients[i], step_size, scale);
    store_remote(main, buffers, local);
    if (in_shards) {
      ops::copy_var_update_(parameters[i], gather_replica_sharded_tensor(target, variable->group));
    }
    state.for_each(
        [&](const std::string& name, const Tensor& t) { states.merge(keys[i] + "." + name, t); });
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
