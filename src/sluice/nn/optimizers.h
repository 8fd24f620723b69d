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

/// Stochastic gradient descent: m = momentum·m + g + weight_decay·w; w -= lr·m. If `momentum` is 0,
/// there is no state and m = g + weight_decay·w.
struct SgdOptions {
  double momentum = 0;      ///< Decay of the state `momentum`; 0: without momentum.
  double weight_decay = 0;  ///< Factor of the weight that is added to the gradient.
};

enum class BiasCorrection { kOff, kOn };

/// Whether weight decay is added to the gradient (Adam with L2) or directly to the update of the
/// weight (AdamW: Loshchilov and Hutter, 2019).
enum class WeightDecay { kInGradient, kDecoupled };

/// How the update of w follows from the moments m = beta1·m + (1 - beta1)·g and v. With bias
/// correction m̂ = m / (1 - beta1ᵗ) and v̂ = v / (1 - beta2ᵗ); otherwise m̂ = m and v̂ = v.
enum class AdamForm {
  /// v = beta2·v + (1 - beta2)·g²; u = m̂ / (√v̂ + epsilon); w -= lr·u (Kingma and Ba, 2015).
  kAdam,
  /// v = max(beta2·v, |g|); u = m̂ / (v + epsilon); w -= lr·u (Kingma and Ba, 2015, §7.1).
  kAdamax,
  /// u as for kAdam; w -= lr·r·u with r = min(‖w‖, max_weight_norm) / ‖u‖, or r = 1 if a norm is 0
  /// (You et al., 2020).
  kLamb,
};

struct AdamOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;  ///< Adds weight_decay·w to g or, if decoupled, to u.
  WeightDecay decay = WeightDecay::kInGradient;
  BiasCorrection bias_correction = BiasCorrection::kOn;  ///< Must be kOn for Adamax.
  /// Dtype of m, and of u without decoupled decay. v and t are float32.
  DType first_order_dtype = f32;
  AdamForm form = AdamForm::kAdam;
  double max_weight_norm = HUGE_VAL;  ///< Upper limit of ‖w‖ in LAMB's factor r.
};

/// Whether a step graph has an input `grad_scale` that multiplies the gradient.
enum class GradScale { kNone, kInput };

/// Builds a graph that updates one parameter with SGD. Inputs: `variable` (by reference), `grad`,
/// `step_size` (minus the learning rate, a float32 scalar) and, with GradScale::kInput,
/// `grad_scale` (a float32 scalar). The state `momentum` is a named input by reference, if there is
/// momentum.
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

/// Builds a graph that updates one parameter with Adam, Adamax or LAMB. The inputs are those of
/// SgdStep. The state is `first_order`, `second_order` and, with bias correction, `step`.
class AdamStep : public Module {
 public:
  /// `group`: the replicas that share a sharded variable. LAMB needs them to compute its norm.
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
  /// Largest global norm: the gradients are scaled so that the square root of the sum of their
  /// squares is at most this. Absent: no scaling.
  std::optional<double> max_grad_norm = {};
  /// Whether the state is kept in remote memory: loaded before each update and stored after it.
  bool remote_state = false;
};

/// Returns the square root of the sum of squares of all tensors, a float32 scalar in their graph.
///
/// Whole and sharded tensors give the same bits. The flattened elements of a tensor are cut into
/// equal chunks (the last may be shorter), one for each member of its group. `groups` has the group
/// of each tensor; empty: all replicas. The sums of squares of all first chunks are added in the
/// order of the tensors, then those of all second chunks, and so on. The members of a group
/// exchange the sums of shards. `cache` provides one graph for each spec and group.
///
/// Error{kUsage} without tensors, or if a shard is made for another number of replicas.
Tensor global_norm(const Tensors& tensors, GraphCache& cache,
                   const std::vector<ops::Group>& groups = {});

/// Returns max_norm / max(norm, max_norm), the factor for gradients of global norm `norm`.
/// Error{kUsage} unless max_norm is a finite float32 above 0.
Tensor clip_factor(const Tensor& norm, double max_norm);

/// Returns ‖t‖² of the whole tensor, a float32 scalar in t's graph. The order of the sum is that of
/// global_norm().
Tensor squared_norm(const Tensor& t, const ops::Group& group = {});

/// Emits the updates of a training step. Parameters of the same spec share one update graph, which
/// is called for each of them.
class Optimizer {
 public:
  static Optimizer sgd(SgdOptions options = {}) { return Optimizer(options); }
  /// Adam with the weight decay that `options` selects.
  static Optimizer adam(AdamOptions options = {}) { return Optimizer(options); }
  /// Adam with decoupled weight decay.
  static Optimizer adamw(AdamOptions options = {.weight_decay = 0.01}) {
    options.decay = WeightDecay::kDecoupled;
    return Optimizer(options);
  }

  /// Adam with 6 bytes of state per parameter element: the first moment and the update are float16,
  /// and there is no bias correction.
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

  /// Adds the updates of all variables to entry graph `main`, in alphabetical order of keys. Adds
  /// the state variables "<path of the variable>.<state>" (zeros), and calls the update graph with
  /// each variable and the gradient under its key. The learning rate is a number or a float32
  /// scalar in `main`, for example from a stream.
  ///
  /// If a gradient is a shard of its variable (nn/rts.h), each replica updates its shard of the
  /// variable and holds only the state of that shard. Then the updated shards are gathered.
  ///
  /// Returns the state under "<key of the variable>.<state>"; it is empty for plain SGD.
  /// Error{kUsage} if a variable has no gradient or a gradient of another shape.
  NamedTensors apply(Graph& main, const NamedTensors& variables, const NamedTensors& grads,
                     const ops::HyperArg& learning_rate, const UpdateOptions& options = {});
  /// Adds the updates with gradients by variable, as returned by
  /// GradGraphInfo::fwd_parent_ins_to_grad_parent_outs().
  NamedTensors apply(Graph& main, const NamedTensors& variables,
                     const std::unordered_map<Tensor, Tensor>& grads,
                     const ops::HyperArg& learning_rate, const UpdateOptions& options = {});

  /// Returns the graph that updates a variable of this spec (SgdStep, AdamStep) and the factories
  /// of its state. There is one graph for each spec. Programs that load variables and state to the
  /// device themselves call it directly. `group`: the replicas that share the variable if it is a
  /// shard.
  const GraphCache::Made& step_graph(Ir ir, const TensorSpec& variable, const TensorSpec& grad,
                                     GradScale scale = GradScale::kNone,
                                     const ops::Group& group = {});

 private:
  explicit Optimizer(std::variant<SgdOptions, AdamOptions> options);

  std::variant<SgdOptions, AdamOptions> options_;
  GraphCache cache_;
};

}  // namespace sluice::nn
