#pragma once
#include <cmath>
#include <optional>

#include "sluice/ops/hypers.h"

namespace sluice::ops {

/// Updates of variables and optimizer state. The functions with `_` write their first operand and
/// return a new handle to its storage. Operands are floating point and have one shape; they do not
/// broadcast. Their dtypes may differ: the result has the dtype of the first operand.
/// Hyperparameters are numbers or floating-point scalar tensors. Updates have no gradient.

struct ScaledAddOptions {
  double a = 1;
  double b = 1;
  std::string operands = {};
  static auto fields(auto&& use) {
    return use(field("a", &ScaledAddOptions::a, "Factor of x."),
               field("b", &ScaledAddOptions::b, "Factor of y."),
               field("operands", &ScaledAddOptions::operands,
                     "Names of the hyperparameters that are operands, in order: \"a,b\"."));
  }
};

struct AccumulateOptions {
  std::string kind = "add";
  double f = 1;
  std::string operands = {};
  static auto fields(auto&& use) {
    return use(
        field("kind", &AccumulateOptions::kind,
              "add, add_square, mean, moving_average, moving_average_square or infinity."),
        field("f", &AccumulateOptions::f, "Factor; for kind mean, the number of values so far."),
        field("operands", &AccumulateOptions::operands, "\"f\" if f is an operand, else empty."));
  }
};

struct AccumulatorScaleOptions {
  double f = 1;
  std::string operands = {};
  static auto fields(auto&& use) {
    return use(field("f", &AccumulatorScaleOptions::f, "Factor."),
               field("operands", &AccumulatorScaleOptions::operands,
                     "\"f\" if f is an operand, else empty."));
  }
};

struct AdamUpdaterOptions {
  std::string kind = "adam";
  double time_step = 0;
  double beta1 = 0;
  double beta2 = 0;
  double epsilon = 1e-7;
  std::string operands = {};
  static auto fields(auto&& use) {
    return use(
        field("kind", &AdamUpdaterOptions::kind, "adam or adamax."),
        field("time_step", &AdamUpdaterOptions::time_step,
              "Number of steps, including this one; 0: no bias correction."),
        field("beta1", &AdamUpdaterOptions::beta1, "Decay of m, for the bias correction only."),
        field("beta2", &AdamUpdaterOptions::beta2, "Decay of v, for the bias correction only."),
        field("epsilon", &AdamUpdaterOptions::epsilon, "Added to the denominator."),
        field("operands", &AdamUpdaterOptions::operands,
              "Names of the hyperparameters that are operands."));
  }
};

struct AdamUpdaterDecayOptions {
  std::string kind = "adam";
  double time_step = 0;
  double beta1 = 0;
  double beta2 = 0;
  double epsilon = 1e-7;
  double weight_decay = 0;
  std::string operands = {};
  static auto fields(auto&& use) {
    return use(
        field("kind", &AdamUpdaterDecayOptions::kind, "adam or adamax."),
        field("time_step", &AdamUpdaterDecayOptions::time_step,
              "Number of steps, including this one; 0: no bias correction."),
        field("beta1", &AdamUpdaterDecayOptions::beta1,
              "Decay of m, for the bias correction only."),
        field("beta2", &AdamUpdaterDecayOptions::beta2,
              "Decay of v, for the bias correction only."),
        field("epsilon", &AdamUpdaterDecayOptions::epsilon, "Added to the denominator."),
        field("weight_decay", &AdamUpdaterDecayOptions::weight_decay, "Factor of the weight."),
        field("operands", &AdamUpdaterDecayOptions::operands,
              "Names of the hyperparameters that are operands."));
  }
};

struct AdamVarUpdateOptions {
  double r1 = 0;
  double r2 = 0;
  double learning_rate = 1;
  double max_weight_norm = HUGE_VAL;
  std::string operands = {};
  static auto fields(auto&& use) {
    return use(
        field("r1", &AdamVarUpdateOptions::r1, "Squared norm of the weight, in extended range."),
        field("r2", &AdamVarUpdateOptions::r2, "Squared norm of the update, in extended range."),
        field("learning_rate", &AdamVarUpdateOptions::learning_rate, "Step size."),
        field("max_weight_norm", &AdamVarUpdateOptions::max_weight_norm,
              "Upper bound of the weight's norm in the ratio."),
        field("operands", &AdamVarUpdateOptions::operands,
              "Names of the hyperparameters that are operands."));
  }
};

const OpDef& scaled_add_def();
const OpDef& scaled_add_in_place_def();
const OpDef& accumulate_def();
const OpDef& accumulator_scale_def();
const OpDef& copy_var_update_def();
const OpDef& adam_updater_def();
const OpDef& adam_updater_decay_def();
const OpDef& adam_var_update_def();

/// a·x + b·y.
Tensor scaled_add(TensorArg x, TensorArg y, const HyperArg& a = 1.0, const HyperArg& b = 1.0);
Tensor scaled_add_(TensorArg x, TensorArg y, const HyperArg& a = 1.0, const HyperArg& b = 1.0);

/// t += f·x.
Tensor accumulate_(TensorArg t, TensorArg x, const HyperArg& f = 1.0);
/// t += f·x².
Tensor accumulate_square_(TensorArg t, TensorArg x, const HyperArg& f = 1.0);
/// t = (s/(s+1))·t + x/(s+1): the running mean. `step` is s, the number of values so far. At s = 0,
/// t must be finite.
Tensor accumulate_mean_(TensorArg t, TensorArg x, const HyperArg& step);
/// t = f·t + (1 − f)·x.
Tensor accumulate_moving_average_(TensorArg t, TensorArg x, const HyperArg& f);
/// t = f·t + (1 − f)·x².
Tensor accumulate_moving_average_square_(TensorArg t, TensorArg x, const HyperArg& f);
/// t = max(f·t, |x|): the exponentially weighted infinity norm of the values so far.
Tensor accumulate_infinity_(TensorArg t, TensorArg x, const HyperArg& f);
/// t *= f. If f is 0, t becomes 0 even if it was NaN or infinite.
Tensor accumulator_scale_(TensorArg t, const HyperArg& f);
/// t = 0.
Tensor accumulator_zero_(TensorArg t);
/// t = x, for any dtype. If the dtypes differ, both must be floating point.
Tensor copy_var_update_(TensorArg t, TensorArg x);

struct AdamUpdaterArgs {
  Tensor weight = {};     ///< Weight; required with weight decay.
  Tensor time_step = {};  ///< Step counter, incremented in place first; enables bias correction.
  /// A tensor, or a number other than 0, adds weight_decay·weight.
  std::optional<HyperArg> weight_decay = {};
  std::optional<HyperArg> beta1 = {};  ///< Decay of m; required with time_step.
  std::optional<HyperArg> beta2 = {};  ///< Decay of v; required with time_step.
  HyperArg epsilon = 1e-7;             ///< Added to the denominator.
};

/// Adam's step (Kingma and Ba, 2015) before the learning rate: m̂ / (√v̂ + ε). Weight decay adds
/// weight_decay·weight. If time_step t is given, m̂ = m/(1 − β1ᵗ) and v̂ = v/(1 − β2ᵗ); else m̂ = m
/// and v̂ = v. With weight decay, the result has the dtype of the weight, else the dtype of m.
/// Error{kUsage} for a time step without betas, or for weight decay without a weight.
Tensor adam_updater(TensorArg m, TensorArg v, const AdamUpdaterArgs& args = {});

/// The update that LAMB scales by its norms (You et al., 2020): adam_updater under the name used
/// there.
Tensor lamb_updater(TensorArg m, TensorArg v, const AdamUpdaterArgs& args = {});

/// AdaMax's step (Kingma and Ba, 2015, §7.1) before the learning rate: m̂ / (v + ε), where v is an
/// infinity norm (accumulate_infinity_). Weight decay adds weight_decay·weight. Takes the arguments
/// of adam_updater, but time_step is required, beta1 is 0.9 by default, and beta2 is not used.
Tensor adamax_updater(TensorArg m, TensorArg v, const AdamUpdaterArgs& args);

/// t −= learning_rate·ratio·x with ratio = min(√r1, max_weight_norm)/√r2, or 1 where r1 or r2 is 0.
/// r1 and r2 are *squared* norms in extended range (ops::sumsquare_extended()).
Tensor adam_var_update(TensorArg t, TensorArg x, TensorArg r1, TensorArg r2,
                       const HyperArg& learning_rate = 1.0,
                       const HyperArg& max_weight_norm = HUGE_VAL);

}  // namespace sluice::ops
