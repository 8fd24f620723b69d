#include <cmath>
#include <type_traits>

#include "sluice/base/checked.h"
#include "sluice/base/numbers/number_text.h"
#include "sluice/ir/op_def.h"
#include "sluice/nn/update/rules.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/cast.h"
#include "sluice/ops/random.h"
#include "sluice/ops/updates.h"

namespace sluice::nn {
namespace {

// Returns the gradient, multiplied by the scale in float32 if there is one.
Tensor scaled(const Tensor& grad, const Tensors& grad_scale) {
  return grad_scale.empty() ? grad : ops::cast(grad, f32) * grad_scale[0];
}

using internal::is_input;
using internal::is_zero;

// Returns g + weight_decay·w in float32, or g if there is no weight decay.
Tensor decayed(const Tensor& grad, const Tensor& variable, const Coefficient& weight_decay) {
  if (is_zero(weight_decay)) return grad;
  return ops::scaled_add(ops::cast(grad, f32), variable, 1.0, weight_decay);
}

// Returns t + h in float32.
Tensor plus(const Tensor& t, const ops::HyperArg& h) {
  return h.tensor() != nullptr ? t + ops::cast(*h.tensor(), f32) : t + h.number();
}

// Returns the share of the gradient in the momentum: 1 in the first step, then 1 - dampening.
ops::HyperArg gradient_share(Builder& b, const Coefficient& dampening) {
  if (is_zero(dampening)) return 1.0;
  const Tensor started = b.add_variable_input("started", zeros(), {}, f32, Pass::kByReference);
  const ops::HyperArg rest = dampening.tensor() != nullptr
                                 ? ops::HyperArg(1.0 - ops::cast(*dampening.tensor(), f32))
                                 : ops::HyperArg(1.0 - dampening.number());
  const Tensor share = ops::scaled_add(1.0 - started, started, 1.0, rest);
  ops::copy_var_update_(started, b.graph().scalar(1, f32, "one"));
  return share;
}

// Calls use(name, coefficient) for each coefficient of the options (const or not).
template <typename Options, typename Use>
void each_hyper(Options& o, Use&& use) {
  using Plain = std::remove_const_t<Options>;
  if constexpr (std::is_same_v<Plain, AdamOptions>) {
    use("beta1", o.beta1);
    use("beta2", o.beta2);
    if (o.epsilon) use("epsilon", *o.epsilon);
    if (o.weight_decay) use("weight_decay", *o.weight_decay);
  } else if constexpr (std::is_same_v<Plain, SgdOptions>) {
    use("momentum", o.momentum);
    use("weight_decay", o.weight_decay);
    use("dampening", o.dampening);
  } else if constexpr (std::is_same_v<Plain, RmspropOptions>) {
    use("alpha", o.alpha);
    use("epsilon", o.epsilon);
    use("weight_decay", o.weight_decay);
    use("momentum", o.momentum);
  }
}

// Returns the options with the inputs of the update graph in place of streamed coefficients and
// tensors.
template <typename Options>
Options with_inputs(Options options, const Tensors& inputs) {
  size_t next = 0;
  each_hyper(options, [&](const char*, Coefficient& c) {
    if (is_input(c)) c = inputs.at(next++);
  });
  SLUICE_CHECK(next == inputs.size());
  return options;
}

std::string text_of(const Coefficient& c) {
  if (c.is_streamed()) return "streamed";
  return c.tensor() != nullptr ? "a tensor" : fmt::format("{}", c.number());
}

template <typename Options>
std::string hyper_key(const Options& options) {
  std::string key;
  each_hyper(options, [&](const char* name, const Coefficient& c) {
    key += fmt::format("{} {}, ", name, text_of(c));
  });
  return key;
}

// Replaces defaults that depend on the form by numbers.
AdamOptions with_defaults(AdamOptions o) {
  if (!o.epsilon) o.epsilon = o.form == AdamForm::kLamb ? 1e-6 : 1e-8;
  if (!o.weight_decay) o.weight_decay = o.decay == WeightDecay::kDecoupled ? 0.01 : 0;
  return o;
}

void check(bool good, std::string_view name, double value, std::string_view range) {
  require(good, "optimizer: {} must be {}, got {}", name, range, number_text(value));
}

void check_form(const SgdOptions& o) {
  require(
      o.form != SgdForm::kNesterov || (!is_zero(o.momentum) && is_zero(o.dampening)),
      "optimizer: Nesterov's form requires momentum above 0 and dampening 0, got momentum {} and "
      "dampening {}",
      text_of(o.momentum), text_of(o.dampening));
  require(is_zero(o.dampening) || !is_zero(o.momentum),
          "optimizer: dampening requires momentum above 0, got momentum 0");
}

void check_form(const AdamOptions& o) {
  check(o.max_weight_norm > 0, "max_weight_norm", o.max_weight_norm, "above 0");
  require(o.form != AdamForm::kAdamax || o.bias_correction == BiasCorrection::kOn,
          "optimizer: Adamax requires bias correction");
}

void check_form(const RmspropOptions&) {}

void check_form(const CustomUpdate& o) {
  check(o.learning_rate > 0 && std::isfinite(o.learning_rate), "default_learning_rate",
        o.learning_rate, "finite and above 0");
}

// Requires that each op of an update computes its elements independently, so that an update of a
// shard has the bits of the whole.
void require_elementwise(const Graph& graph) {
  for (const Op& op : graph.ops()) {
    // The mask of dropout depends on the index of an element.
    const bool draws = op.def == &ops::dropout_def();
    if ((op.def->has(kElementwise) && !draws) || op.def->has(kView)) continue;
    for (const Operand& in : op.inputs) {
      require(graph.spec(in.tensor).shape.empty(),
              "optimizer: {} of an update of a shard must be elementwise; add a last parameter "
              "`const ops::Group&` to build, for nn::squared_norm()",
              op.label());
    }
  }
}

std::string key_of(const ops::Group& group) { return group ? to_string(*group) : "all"; }

}  // namespace

namespace internal {

void check_hyper(std::string_view name, const ops::HyperArg& h) {
  if (h.tensor() != nullptr) {
    const TensorSpec& spec = (*h.tensor())->spec();
    require(spec.shape.empty() && is_float(spec.dtype),
            "optimizer: {} must be a number or a floating-point scalar, got {}", name,
            to_string(spec));
    return;
  }
  const double value = h.number();
  if (name == "epsilon") {
    check(value > 0 && std::isfinite(value), name, value, "finite and above 0");
  } else if (name == "weight_decay" || name == "rate_factor") {
    check(value >= 0 && std::isfinite(value), name, value, "finite and at least 0");
  } else if (name == "dampening") {
    check(value >= 0 && value <= 1, name, value, "in [0, 1]");
  } else {
    check(value >= 0 && value < 1, name, value, "in [0, 1)");
  }
}

UpdateRule checked(UpdateRule rule) {
  if (AdamOptions* o = std::get_if<AdamOptions>(&rule)) *o = with_defaults(std::move(*o));
  std::visit(
      [](const auto& o) {
        each_hyper(o, check_hyper);
        check_form(o);
      },
      rule);
  return rule;
}

// With momentum 0.9, each gradient acts ten times as much in the end. Adamax has the rate of its
// authors. LAMB diverges in deep networks from 0.003 on.
double default_learning_rate(const UpdateRule& rule) {
  if (const auto* sgd = std::get_if<SgdOptions>(&rule))
    return is_zero(sgd->momentum) ? 0.05 : 0.005;
  if (const auto* custom = std::get_if<CustomUpdate>(&rule)) return custom->learning_rate;
  const auto* adam = std::get_if<AdamOptions>(&rule);
  return adam == nullptr || adam->form == AdamForm::kAdam ? 0.001 : 0.002;
}

std::vector<NamedInput> hyper_inputs(const UpdateRule& rule) {
  std::vector<NamedInput> inputs;
  const auto add = [&](const char* name, const Coefficient& c) {
    const DType dtype = c.is_streamed()         ? f32
                        : c.tensor() != nullptr ? (*c.tensor())->dtype()
                                                : f32;
    if (is_input(c)) inputs.push_back({name, {{}, dtype, {}}});
  };
  std::visit([&](const auto& o) { each_hyper(o, add); }, rule);
  return inputs;
}

Tensors hyper_tensors(const UpdateRule& rule, const Tensors& streamed) {
  Tensors tensors;
  size_t next = 0;
  const auto add = [&](const char* name, const Coefficient& c) {
    require(!c.is_streamed() || next < streamed.size(),
            "optimizer: {} is streamed, which requires a training program; pass a tensor of a "
            "stream instead",
            name);
    if (is_input(c)) tensors.push_back(c.is_streamed() ? streamed[next++] : Tensor(*c.tensor()));
  };
  std::visit([&](const auto& o) { each_hyper(o, add); }, rule);
  require(next == streamed.size(), "optimizer: must have {} streamed coefficients, got {}", next,
          streamed.size());
  return tensors;
}

std::vector<StreamedCoefficient> streamed_coefficients(const UpdateRule& rule) {
  std::vector<StreamedCoefficient> all;
  const auto add = [&](const char* name, const Coefficient& c) {
    if (c.is_streamed()) all.push_back({0, name, c.number()});
  };
  std::visit([&](const auto& o) { each_hyper(o, add); }, rule);
  return all;
}

}  // namespace internal

Coefficient streamed(double value) {
  Coefficient coefficient(value);
  coefficient.streamed_ = true;
  return coefficient;
}

Tensor add_state(Builder& b, const std::string& name, const Tensor& variable, DType dtype) {
  TensorSpec spec = variable.spec();
  spec.dtype = dtype;
  return b.add_variable_input(name, VariableFactory(spec, zeros(), Pass::kByReference));
}

void SgdStep::build(Builder& b, Tensor variable, Tensor grad, Tensor step_size,
                    const Tensors& grad_scale, const Tensors& hypers) const {
  const SgdOptions o = with_inputs(options_, hypers);
  const Tensor g = scaled(grad, grad_scale);
  if (is_zero(o.momentum)) {
    ops::scaled_add_(variable, decayed(g, variable, o.weight_decay), 1.0, step_size);
    return;
  }
  Tensor m = add_state(b, "momentum", variable);
  if (o.form == SgdForm::kClassic && is_zero(o.dampening)) {
    m = ops::scaled_add_(m, g, o.momentum, 1.0);
    if (!is_zero(o.weight_decay)) m = ops::accumulate_(m, variable, o.weight_decay);
    ops::scaled_add_(variable, m, 1.0, step_size);
    return;
  }
  const Tensor d = ops::cast(decayed(g, variable, o.weight_decay), f32);
  m = ops::scaled_add_(m, d, o.momentum, gradient_share(b, o.dampening));
  const bool nesterov = o.form == SgdForm::kNesterov;
  ops::scaled_add_(variable, nesterov ? ops::scaled_add(d, m, 1.0, o.momentum) : m, 1.0, step_size);
}

std::string SgdStep::cache_key() const {
  return fmt::format("{}{} {}", hyper_key(options_), static_cast<int>(options_.form),
                     static_cast<int>(scale_));
}

AdamStep::AdamStep(AdamOptions options, GradScale scale, const ops::Group& group)
    : options_(with_defaults(std::move(options))), scale_(scale), group_(group) {}

void AdamStep::build(Builder& b, Tensor variable, Tensor grad, Tensor step_size,
                     const Tensors& grad_scale, const Tensors& hypers) const {
  const AdamOptions o = with_inputs(options_, hypers);
  Tensor g = scaled(grad, grad_scale);
  if (o.decay == WeightDecay::kInGradient) g = decayed(g, variable, *o.weight_decay);
  Tensor m = add_state(b, "first_order", variable, o.first_order_dtype);
  Tensor v = add_state(b, "second_order", variable);
  ops::AdamUpdaterArgs args{.beta1 = o.beta1, .beta2 = o.beta2, .epsilon = *o.epsilon};
  if (o.bias_correction == BiasCorrection::kOn) {
    args.time_step = b.add_variable_input("step", zeros(), {}, f32, Pass::kByReference);
  }
  if (o.decay == WeightDecay::kDecoupled && !is_zero(*o.weight_decay)) {
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
  return fmt::format("{}{} {} {} {} {} {} {}", hyper_key(o), static_cast<int>(o.decay),
                     static_cast<int>(o.bias_correction), name_of(o.first_order_dtype),
                     static_cast<int>(o.form), o.max_weight_norm, static_cast<int>(scale_),
                     key_of(group_));
}

void RmspropStep::build(Builder& b, Tensor variable, Tensor grad, Tensor step_size,
                        const Tensors& grad_scale, const Tensors& hypers) const {
  const RmspropOptions o = with_inputs(options_, hypers);
  const Tensor d = ops::cast(decayed(scaled(grad, grad_scale), variable, o.weight_decay), f32);
  Tensor variance = add_state(b, "second_order", variable);
  variance = ops::accumulate_moving_average_square_(variance, d, o.alpha);
  if (o.centering == Centering::kOn) {
    Tensor mean = add_state(b, "first_order", variable);
    mean = ops::accumulate_moving_average_(mean, d, o.alpha);
    variance = variance - mean * mean;
  }
  const bool tensorflow = o.form == RmspropForm::kTensorFlow;
  const Tensor update = tensorflow ? d / ops::sqrt(plus(variance, o.epsilon))
                                   : ops::adam_updater(d, variance, {.epsilon = o.epsilon});
  if (is_zero(o.momentum)) {
    ops::scaled_add_(variable, update, 1.0, step_size);
    return;
  }
  Tensor m = add_state(b, "momentum", variable);
  if (tensorflow) {
    m = ops::scaled_add_(m, update, o.momentum, -step_size);
    ops::scaled_add_(variable, m, 1.0, -1.0);
  } else {
    m = ops::scaled_add_(m, update, o.momentum, 1.0);
    ops::scaled_add_(variable, m, 1.0, step_size);
  }
}

std::string RmspropStep::cache_key() const {
  return fmt::format("{}{} {} {}", hyper_key(options_), static_cast<int>(options_.centering),
                     static_cast<int>(options_.form), static_cast<int>(scale_));
}

void CustomStep::build(Builder& b, Tensor variable, Tensor grad, Tensor step_size,
                       const Tensors& grad_scale, const Tensors& /*hypers*/) const {
  update_.build(b, variable, scaled(grad, grad_scale), step_size, group_);
  if (update_.is_elementwise && !variable.meta_shape().empty()) require_elementwise(b.graph());
}

std::string CustomStep::cache_key() const {
  return fmt::format("{} {} {}", update_.key, static_cast<int>(scale_), key_of(group_));
}

}  // namespace sluice::nn
