#pragma once
#include <cmath>
#include <optional>
#include <string>
#include <unordered_map>
#include <variant>

#include "sluice/nn/graph_cache.h"
#include "sluice/ops/collectives.h"
#include "sluice/ops/hypers.h"

namespace sluice::nn {

/// m = momentum·m + g + weight_decay·w; w -= lr·m. Without momentum there is no state and m = g +
/// weight_decay·w.
struct SgdOptions {
  double momentum = 0;      ///< Decay of the state `momentum`; 0: none.
  double weight_decay = 0;  ///< Factor of the weight that is added to the gradient.
};

enum class BiasCorrection { kOff, kOn };

/// Where weight decay acts: on the gradient (Adam with L2), or beside it on the weight (AdamW:
/// Loshchilov and Hutter, 2019).
enum class WeightDecay { kInGradient, kDecoupled };

/// What becomes of the moments m = beta1·m + (1 - beta1)·g and v, with m̂ = m / (1 - beta1ᵗ) and v̂ =
/// v / (1 - beta2ᵗ) under bias correction, else m and v.
enum class AdamForm {
  kAdam,  ///< v = beta2·v + (1 - beta2)·g²; u = m̂ / (√v̂ + epsilon); w -= lr·u (Kingma and Ba, 2015).
  kAdamax,  ///< v = max(beta2·v, |g|); u = m̂ / (v + epsilon); w -= lr·u (the same, §7.1).
  /// Adam's u; w -= lr·r·u, r = min(‖w‖, max_weight_norm) / ‖u‖, or 1 where a norm is 0 (You et al.,
  /// 2020).
  kLamb,
};

struct AdamOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;  ///< Decoupled, it adds weight_decay·w to u.
  WeightDecay decay = WeightDecay::kInGradient;
  BiasCorrection bias_correction = BiasCorrection::kOn;  ///< Adamax needs it.
  DType first_order_dtype = f32;  ///< Of m, and of u without decoupled decay; v and t are float32.
  AdamForm form = AdamForm::kAdam;
  double max_weight_norm = HUGE_VAL;  ///< Of LAMB.
};

/// Whether a step graph has an input `grad_scale` that gradients are multiplied with.
enum class GradScale { kNone, kInput };

/// One update of one parameter, as a graph. Inputs: `variable` (by reference), `grad`, `step_size`
/// (minus the learning rate, a float32 scalar), and [`grad_scale`] (a float32 scalar); the state
/// are named inputs by reference.
class SgdStep : public Module {
 public:
  SgdStep(SgdOptions options, GradScale scale) : options_(options), scale_(scale) {}
  void build(Builder& b, Tensor variable, Tensor grad, Tensor step_size,
             const Tensors& grad_scale) const;
  std::string cache_key() const;

 private:
  SgdOptions options_;
  GradScale scale_;
};

/// State: `first_order`, `second_order`, and `step` under bias correction.
class AdamStep : public Module {
 public:
  /// `group`: whose replicas share a variable that is a shard, for its norm (LAMB).
  AdamStep(AdamOptions options, GradScale scale, const ops::Group& group = {})
      : options_(options), scale_(scale), group_(group) {}
  void build(Builder& b, Tensor variable, Tensor grad, Tensor step_size,
             const Tensors& grad_scale) const;
  std::string cache_key() const;

 private:
  AdamOptions options_;
  GradScale scale_;
  ops::Group group_;
};

struct UpdateOptions {
  /// Gradients are scaled so that the root of the sum of squares of all of them is at most this;
  /// absent: never.
  std::optional<double> max_grad_norm;
  /// Whether the state lives in remote memory: loaded before each update, stored after it.
  bool remote_state = false;
};

/// The square root of the sum of squares of all tensors, a float32 scalar in their graph, and the
/// same bits whether they are whole or shards: each tensor is cut in as many equal chunks of its
/// flattened elements as its group (`groups`, by tensor; default: all replicas) has members, the
/// last may be shorter; the sums of squares of the first chunks are added in the tensors' order,
/// then those of the second, …. Members of a group exchange those of shards. Graphs come from
/// `cache`, one a spec and group. Error{kUsage} without tensors and for a shard over another number
/// of replicas.
Tensor global_norm(const Tensors& tensors, GraphCache& cache,
                   const std::vector<ops::Group>& groups = {});

/// max_norm / max(norm, max_norm): what gradients of global norm `norm` are multiplied with.
Tensor clip_factor(const Tensor& norm, double max_norm);

/// ‖t‖² of the whole tensor, a float32 scalar, summed as global_norm does; in t's graph.
Tensor squared_norm(const Tensor& t, const ops::Group& group = {});

/// Emits the updates of a training step. The update of each distinct spec is a graph made once and
/// called for every parameter that has it.
class Optimizer {
 public:
  static Optimizer sgd(SgdOptions options = {}) { return Optimizer(options); }
  /// Adam; `options` say what weight decay means.
  static Optimizer adam(AdamOptions options = {}) { return Optimizer(options); }
  /// Adam with decoupled weight decay.
  static Optimizer adamw(AdamOptions options = {.weight_decay = 0.01}) {
    options.decay = WeightDecay::kDecoupled;
    return Optimizer(options);
  }

  /// Adam with 6 bytes of state a parameter: a float16 first moment and update, no step.
  static Optimizer adam_f16() {
    return adam(
        {.epsilon = 1e-5, .bias_correction = BiasCorrection::kOff, .first_order_dtype = f16});
  }
  static Optimizer adamax(AdamOptions options = {}) {
    options.form = AdamForm::kAdamax;
    return Optimizer(options);
  }
  /// LAMB, with decoupled weight decay.
  static Optimizer lamb(AdamOptions options = {.epsilon = 1e-6, .weight_decay = 0.01}) {
    options.form = AdamForm::kLamb;
    options.decay = WeightDecay::kDecoupled;
    return Optimizer(options);
  }

  /// Adds to entry graph `main`: the state variables "<path of the variable>.<state>" (zeros), and
  /// for every variable, in order of keys, the call that updates it with the gradient under its
  /// key. The learning rate is a number, or a float32 scalar in `main` (a stream's, say). Returns
  /// the state by those paths (none for plain SGD). Where a gradient is a shard of its variable
  /// (nn/rts.h), each replica updates its shard, whose state is all it holds, and the shards are
  /// gathered. Error{kUsage} if a variable has no gradient or one of another shape.
  NamedTensors apply(Graph& main, const NamedTensors& variables, const NamedTensors& grads,
                     const ops::HyperArg& learning_rate, const UpdateOptions& options = {});
  /// The same with gradients by variable, as GradGraphInfo::fwd_parent_ins_to_grad_parent_outs
  /// gives them.
  NamedTensors apply(Graph& main, const NamedTensors& variables,
                     const std::unordered_map<Tensor, Tensor>& grads,
                     const ops::HyperArg& learning_rate, const UpdateOptions& options = {});

  /// The graph of one update of such a variable (SgdStep, AdamStep) and the factories of its state,
  /// for programs that bring variables and state to the device themselves. One a spec. `group`:
  /// whose replicas share the variable, if it is a shard.
  const GraphCache::Made& step_graph(Ir ir, const TensorSpec& variable, const TensorSpec& grad,
                                     GradScale scale = GradScale::kNone,
                                     const ops::Group& group = {});

 private:
  explicit Optimizer(std::variant<SgdOptions, AdamOptions> options);

  std::variant<SgdOptions, AdamOptions> options_;
  GraphCache cache_;
};

}  // namespace sluice::nn
