#pragma once
#include <cmath>
#include <concepts>
#include <cstddef>
#include <functional>
#include <optional>
#include <source_location>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "sluice/nn/graph_cache.h"
#include "sluice/ops/collectives.h"
#include "sluice/ops/hypers.h"

namespace sluice::nn {

/// A coefficient of an update rule, such as a beta or a weight decay. It is
///
/// * a number, which is compiled into the update;
/// * streamed(), a number that the training program reads from a stream for each update, so that
///   TrainingModel::set_optimizer() changes it between two calls; or
/// * a tensor, an input of the update graph: a floating-point scalar of the entry graph, for
///   example from a stream of the program. Its value is not checked.
class Coefficient : public ops::HyperArg {
 public:
  Coefficient(double value) : HyperArg(value) {}  // NOLINT: implicit
  Coefficient(Tensor tensor,
              std::source_location where = std::source_location::current())  // NOLINT: implicit
      : HyperArg(std::move(tensor), where) {}
  Coefficient(ops::HyperArg value) : HyperArg(std::move(value)) {}  // NOLINT: implicit

  bool is_streamed() const { return streamed_; }

 private:
  friend Coefficient streamed(double value);
  bool streamed_ = false;
};

/// Returns a streamed coefficient of this value, which is rounded to float32. It is present in the
/// update whatever its value: a weight decay of 0 is computed, and a momentum of 0 has state.
Coefficient streamed(double value);

/// A coefficient of an optimizer that is streamed.
struct StreamedCoefficient {
  size_t group = 0;  ///< Parameter group.
  std::string name;  ///< Member of the options: "weight_decay".
  double value = 0;
};

/// The update of w that follows from the momentum m.
enum class SgdForm {
  kClassic,   ///< w -= lr·m.
  kNesterov,  ///< w -= lr·(d + momentum·m). Requires momentum, and dampening 0.
};

/// Stochastic gradient descent as in torch.optim.SGD: d = g + weight_decay·w and
/// m = momentum·m + (1 - dampening)·d, but m = d in the first step. If `momentum` is the number 0,
/// there is no state and w -= lr·d.
struct SgdOptions {
  Coefficient momentum = 0;      ///< Decay of the state `momentum`; 0: without momentum.
  Coefficient weight_decay = 0;  ///< Factor of the weight that is added to the gradient.
  /// Part of the gradient that does not enter the momentum. Requires momentum. If it is not the
  /// number 0, the scalar state `started` is 0 before the first step and 1 after it.
  Coefficient dampening = 0;
  SgdForm form = SgdForm::kClassic;
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
  Coefficient beta1 = 0.9;
  Coefficient beta2 = 0.999;
  std::optional<Coefficient> epsilon = {};  ///< Default: 1e-6 for LAMB, else 1e-8.
  /// Adds weight_decay·w to g or, if decoupled, to u. Default: 0.01 if decoupled, else 0.
  std::optional<Coefficient> weight_decay = {};
  WeightDecay decay = WeightDecay::kInGradient;
  BiasCorrection bias_correction = BiasCorrection::kOn;  ///< Must be kOn for Adamax.
  /// Dtype of m, and of u without decoupled decay. v and t are float32.
  DType first_order_dtype = f32;
  AdamForm form = AdamForm::kAdam;
  double max_weight_norm = HUGE_VAL;  ///< Upper limit of ‖w‖ in LAMB's factor r.
};

/// The update of w that follows from d = g + weight_decay·w and the variance s.
enum class RmspropForm {
  /// m = momentum·m + d / (√s + epsilon); w -= lr·m (torch.optim.RMSprop).
  kPyTorch,
  /// m = momentum·m + lr·d / √(s + epsilon); w -= m (TensorFlow and Keras, whose defaults are alpha
  /// 0.9 and epsilon 1e-7).
  kTensorFlow,
};

/// Whether the square of the mean gradient is subtracted from the mean square.
enum class Centering { kOff, kOn };

/// RMSprop (Hinton, 2012). v = alpha·v + (1 - alpha)·d² and s = v. With centering (Graves, 2013)
/// a = alpha·a + (1 - alpha)·d and s = v - a². All state is 0 at first.
struct RmspropOptions {
  Coefficient alpha = 0.99;
  Coefficient epsilon = 1e-8;
  Coefficient weight_decay = 0;  ///< Factor of the weight that is added to the gradient.
  Coefficient momentum = 0;      ///< Decay of the state `momentum`; 0: without momentum.
  Centering centering = Centering::kOff;
  RmspropForm form = RmspropForm::kPyTorch;
};

/// Whether a step graph has an input `grad_scale` that multiplies the gradient.
enum class GradScale { kNone, kInput };

/// Builds a graph that updates one parameter with SGD. Inputs: `variable` (by reference), `grad`,
/// `step_size` (minus the learning rate, a float32 scalar) and, with GradScale::kInput,
/// `grad_scale` (a float32 scalar). After these come the coefficients that are streamed or tensors,
/// in the order of the options. The state is named inputs by reference: `momentum` if there is
/// momentum, `started` if there is dampening.
class SgdStep : public Module {
 public:
  SgdStep(SgdOptions options, GradScale scale) : options_(std::move(options)), scale_(scale) {}
  void build(Builder& b, Tensor variable, Tensor grad, Tensor step_size, const Tensors& grad_scale,
             const Tensors& hypers = {}) const;
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
  AdamStep(AdamOptions options, GradScale scale, const ops::Group& group = {});
  void build(Builder& b, Tensor variable, Tensor grad, Tensor step_size, const Tensors& grad_scale,
             const Tensors& hypers = {}) const;
  std::string cache_key() const;

 private:
  AdamOptions options_;
  GradScale scale_;
  ops::Group group_;
};

/// Builds a graph that updates one parameter with RMSprop. The inputs are those of SgdStep. The
/// state is `second_order` (v), with centering `first_order` (a), and `momentum` if there is
/// momentum.
class RmspropStep : public Module {
 public:
  RmspropStep(RmspropOptions options, GradScale scale)
      : options_(std::move(options)), scale_(scale) {}
  void build(Builder& b, Tensor variable, Tensor grad, Tensor step_size, const Tensors& grad_scale,
             const Tensors& hypers = {}) const;
  std::string cache_key() const;

 private:
  RmspropOptions options_;
  GradScale scale_;
};

/// A module of a program that updates one parameter. It changes `variable` in place. Its state is
/// variables that it adds by reference (add_state(), Builder::add_variable_input). `grad` has the
/// dtype of its accumulator and is scaled where gradients are clipped. `step_size` is minus the
/// learning rate, a float32 scalar. Modules with equal cache_key() compute equal updates.
///
/// A module whose update is not elementwise, such as one that computes a norm, declares a last
/// parameter `const ops::Group&`: the replicas that share a sharded variable, for squared_norm().
/// In a sharded update, `variable`, `grad` and the state are shards, of fewer elements than the
/// variable: a formula must not read their number.
template <typename M>
concept UpdateModule = CacheableModule<M> && std::is_base_of_v<Module, M> &&(
    requires(const M& m, Builder& b, const Tensor& t) { m.build(b, t, t, t); } ||
    requires(const M& m, Builder& b, const Tensor& t, const ops::Group& group) {
      m.build(b, t, t, t, group);
    });

/// The update of a module of a program (Optimizer::custom).
struct CustomUpdate {
  std::string key;  ///< Identifies the class and its cache_key().
  double learning_rate = 0.001;
  bool is_elementwise = true;  ///< Whether `build` ignores the group.
  std::function<void(Builder& b, const Tensor& variable, const Tensor& grad,
                     const Tensor& step_size, const ops::Group& group)>
      build = nullptr;
};

/// Builds a graph that updates one parameter with a module of a program. The inputs are those of
/// SgdStep. Error{kUsage} if an update that is declared elementwise computes another op on a shard.
class CustomStep : public Module {
 public:
  CustomStep(CustomUpdate update, GradScale scale, ops::Group group)
      : update_(std::move(update)), scale_(scale), group_(std::move(group)) {}
  void build(Builder& b, Tensor variable, Tensor grad, Tensor step_size, const Tensors& grad_scale,
             const Tensors& hypers = {}) const;
  std::string cache_key() const;

 private:
  CustomUpdate update_;
  GradScale scale_;
  ops::Group group_;
};

/// Adds a state of an update to the module: zeros of the variable's shape, by reference. Returns
/// the input.
Tensor add_state(Builder& b, const std::string& name, const Tensor& variable, DType dtype = f32);

using UpdateRule = std::variant<SgdOptions, AdamOptions, RmspropOptions, CustomUpdate>;

struct UpdateOptions {
  /// Largest global norm: the gradients are scaled so that the square root of the sum of their
  /// squares is at most this. Absent: no scaling.
  std::optional<double> max_grad_norm = {};
  /// Whether the state is kept in remote memory: loaded before each update and stored after it.
  bool remote_state = false;
};

/// Returns the square root of the sum of squares of all tensors, a float32 scalar in their graph.
/// The sum may overflow float32 (ops/extended.h); a norm that overflows is the largest float32.
///
/// Whole and sharded tensors compute the same bits. The flattened elements of a tensor are cut into
/// equal chunks (the last may be shorter), one for each member of its group. `groups` has the group
/// of each tensor; empty: all replicas. The sums of squares of all first chunks are added in the
/// order of the tensors, then those of all second chunks, and so on. The members of a group
/// exchange the sums of shards. `cache` provides one graph for each spec and group.
///
/// Error{kUsage} without tensors, or if a shard is made for another number of replicas.
Tensor global_norm(const Tensors& tensors, GraphCache& cache,
                   const std::vector<ops::Group>& groups = {});

/// global_norm() in two steps, for tensors that do not exist at the same time. squares_of_chunks()
/// returns the sums of squares of a tensor's chunks, float32 scalars in extended range
/// (ops/extended.h). norm_of_chunks() combines those of all tensors, in the tensors' order.
Tensors squares_of_chunks(const Tensor& t, const ops::Group& group = {});
Tensors squares_of_chunks(const Tensor& t, GraphCache& cache, const ops::Group& group = {});
Tensor norm_of_chunks(const std::vector<Tensors>& squares);

/// Returns max_norm / max(norm, max_norm), the factor for gradients of global norm `norm`.
/// Error{kUsage} unless max_norm is a finite float32 above 0.
Tensor clip_factor(const Tensor& norm, double max_norm);

/// Returns ‖t‖² of the whole tensor, a float32 scalar in extended range (ops/extended.h) in t's
/// graph. The order of the sum is that of global_norm().
Tensor squared_norm(const Tensor& t, const ops::Group& group = {});

/// Tells by its key whether a variable belongs to a parameter group: any function of the key.
class KeyMatch {
 public:
  KeyMatch() = default;
  KeyMatch(std::nullptr_t) {}  // NOLINT: implicit
  /// `text` describes the function in errors.
  template <typename F>
  requires std::predicate<const F&, std::string_view> &&
      (!std::same_as<F, KeyMatch>)KeyMatch(F function,
                                           std::string text = "a function")  // NOLINT: implicit
      : function_(std::move(function)), text_(std::move(text)) {}

  bool operator()(std::string_view key) const { return function_(key); }
  bool operator==(std::nullptr_t) const { return function_ == nullptr; }
  const std::string& text() const { return text_; }

 private:
  std::function<bool(std::string_view key)> function_;
  std::string text_;
};

/// Return a match of the keys that at least one pattern describes (keys_like), or that no pattern
/// describes (keys_unlike). A pattern describes whole keys; `*` represents any characters, dots
/// included: "*.bias", "layers.*.norm.*".
KeyMatch keys_like(std::vector<std::string> patterns);
KeyMatch keys_unlike(std::vector<std::string> patterns);

struct ParameterGroup;

/// Emits the updates of a training step. Parameters of the same spec and group share one update
/// graph, which is called for each of them.
class Optimizer {
 public:
  static Optimizer sgd(SgdOptions options = {}) { return Optimizer(std::move(options)); }
  /// Adam with the weight decay that `options` selects.
  static Optimizer adam(AdamOptions options = {}) { return Optimizer(std::move(options)); }
  /// Adam with decoupled weight decay.
  static Optimizer adamw(AdamOptions options = {}) {
    options.decay = WeightDecay::kDecoupled;
    return adam(std::move(options));
  }

  /// Adam with 6 bytes of state per parameter element: the first moment and the update are float16,
  /// and there is no bias correction.
  static Optimizer adam_f16() {
    return adam(
        {.epsilon = 1e-5, .bias_correction = BiasCorrection::kOff, .first_order_dtype = f16});
  }
  static Optimizer adamax(AdamOptions options = {}) {
    options.form = AdamForm::kAdamax;
    return adam(std::move(options));
  }
  /// LAMB, with decoupled weight decay.
  static Optimizer lamb(AdamOptions options = {}) {
    options.form = AdamForm::kLamb;
    options.decay = WeightDecay::kDecoupled;
    return adam(std::move(options));
  }
  static Optimizer rmsprop(RmspropOptions options = {}) { return Optimizer(std::move(options)); }
  /// An optimizer of the program: a module that updates one parameter. `default_learning_rate` is
  /// that of a training without one, a number above 0.
  template <UpdateModule Step>
  static Optimizer custom(Step step, double default_learning_rate = 0.001) {
    CustomUpdate update;
    update.key = std::string(typeid(Step).name()) + " " + std::string(step.cache_key());
    update.learning_rate = default_learning_rate;
    constexpr bool in_group = requires(Builder & b, const Tensor& t, const ops::Group& group) {
      step.build(b, t, t, t, group);
    };
    update.is_elementwise = !in_group;
    update.build = [step = std::move(step)](Builder& b, const Tensor& variable, const Tensor& grad,
                                            const Tensor& step_size,
                                            [[maybe_unused]] const ops::Group& group) {
      if constexpr (in_group)
        step.build(b, variable, grad, step_size, group);
      else
        step.build(b, variable, grad, step_size);
    };
    return Optimizer(UpdateRule(std::move(update)));
  }
  /// Each variable is updated by the optimizer of its parameter group. Error{kUsage} without
  /// groups, for a group without a match, for a rate factor below 0, and if the optimizer of a
  /// group has groups.
  static Optimizer grouped(const std::vector<ParameterGroup>& groups);

  /// Adds the updates of all variables to entry graph `main`, in alphabetical order of keys. Adds
  /// the state variables "<path of the variable>.<state>" (zeros), and calls the update graph with
  /// each variable and the gradient under its key. The learning rate is a finite number or a
  /// float32 scalar in `main`, for example from a stream.
  ///
  /// If a gradient is a shard of its variable (nn/rts.h), each replica updates its shard of the
  /// variable and holds only the state of that shard. Then the updated shards are gathered.
  ///
  /// A variable in no parameter group is not updated. It does not have state and does not need a
  /// gradient. Its gradient is not a part of the global norm.
  ///
  /// Returns the state under "<key of the variable>.<state>"; it is empty for plain SGD.
  /// Error{kUsage} if a variable has no gradient or a gradient of another shape, or is in two
  /// parameter groups, and if a group has no variable.
  NamedTensors apply(Graph& main, const NamedTensors& variables, const NamedTensors& grads,
                     const ops::HyperArg& learning_rate, const UpdateOptions& options = {});
  /// Adds the updates with gradients by variable, as returned by
  /// GradGraphInfo::fwd_parent_ins_to_grad_parent_outs().
  NamedTensors apply(Graph& main, const NamedTensors& variables,
                     const std::unordered_map<Tensor, Tensor>& grads,
                     const ops::HyperArg& learning_rate, const UpdateOptions& options = {});

  /// Returns the index of the parameter group that updates a variable, or nothing if the variable
  /// is in no group. apply() and programs that use step_graph() both ask this function.
  ///
  /// `key` is the key of the variable among all variables of the model, as in apply():
  /// "layers.3.fc.weight", also where a block knows the variable as "fc.weight". Blocks that share
  /// an update graph must have their variables in the same groups. Returns 0 for every key if the
  /// optimizer was made without groups. Error{kUsage} names a variable in two groups.
  std::optional<size_t> group_of(std::string_view key) const;

  /// Requires that each parameter group has a variable among all variables of the model, `keys`.
  /// Error{kUsage} names a group without one. apply() and train::build_training() call it.
  void check_groups(const std::vector<std::string>& keys) const;

  /// Returns the graph that updates a variable of this spec in parameter group `parameter_group`
  /// (SgdStep, AdamStep, RmspropStep, CustomStep) and the factories of its state. There is one
  /// graph for each spec and set of options. Programs that load variables and state to the device
  /// themselves call it directly. Its arguments are the variable, the gradient, step_size() of the
  /// parameter group, the factor of the gradient if `scale` is kInput, and hypers() of the
  /// parameter group. `group`: the replicas that share the variable if it is a shard.
  /// `parameter_group`: the result of group_of() for the variable; Error{kUsage} if it is absent
  /// and the optimizer has groups.
  const GraphCache::Made& step_graph(Ir ir, const TensorSpec& variable, const TensorSpec& grad,
                                     GradScale scale = GradScale::kNone,
                                     const ops::Group& group = {},
                                     std::optional<size_t> parameter_group = {});
  /// Returns minus the learning rate of a parameter group, a scalar in `graph`. The rate is
  /// `learning_rate` times the group's factor; tensors of both must be in `graph`.
  Tensor step_size(Graph& graph, const ops::HyperArg& learning_rate,
                   std::optional<size_t> parameter_group = {}) const;
  /// Returns the tensors of the coefficients of a parameter group that are no constants, in the
  /// order of inputs of its update graph. `streamed` has those of streamed(), for this group.
  /// Error{kUsage} if it has others.
  Tensors hypers(std::optional<size_t> parameter_group = {}, const Tensors& streamed = {}) const;
  /// Returns the streamed coefficients by parameter group, in the order of inputs.
  std::vector<StreamedCoefficient> streamed() const;
  /// Returns the learning rate of an optimizer that is trained without one: 0.05 for SGD, 0.005
  /// with momentum, 0.002 for Adamax and LAMB, 0.001 for other forms of Adam and for RMSprop, and
  /// the argument of custom(). Error{kUsage} if parameter groups differ.
  double default_learning_rate() const;
  /// Whether the update of a variable keeps state.
  bool has_state() const;
  /// Formats the update rules of all parameter groups, without the values of streamed coefficients.
  /// Optimizers with equal texts have one program.
  std::string rules() const;

 private:
  struct Group {
    KeyMatch match;  ///< Empty: all keys.
    UpdateRule rule;
    ops::HyperArg rate_factor = 1;
  };

  explicit Optimizer(UpdateRule rule);
  explicit Optimizer(std::vector<Group> groups) : groups_(std::move(groups)) {}
  const Group& group_at(std::optional<size_t> index) const;

  std::vector<Group> groups_;
  GraphCache cache_;
};

/// Variables with an update of their own, for example weights without weight decay.
struct ParameterGroup {
  KeyMatch match;       ///< Selects the variables by key. A variable is in at most one group.
  Optimizer optimizer;  ///< Updates them; made without groups.
  /// The learning rate is multiplied by this, a number or a float32 scalar as the rate is.
  ops::HyperArg rate_factor = 1;
};

}  // namespace sluice::nn
