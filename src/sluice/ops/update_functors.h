#pragma once
#include <tuple>

#include "sluice/base/numbers/simd_math.h"

/// The float formulas of the updating operators; see functors.h for the rules. A multiply-add is
/// fused exactly where `fma` is written here. If an operator type has several formulas, option
/// `kind` selects one by its `kVariant`.
namespace sluice::ops::functor {

/// (x, y): a·x + b·y. The hyperparameters are a and b.
struct ScaledAdd {
  static constexpr const char* kType = "ScaledAdd";
  float a, b;
  static ScaledAdd make(const double* h);
  template <typename V>
  V operator()(V x, V y) const {
    return fma(V(b), y, x * a);
  }
};

// Accumulate: the operands are (t, x), the hyperparameter is f.

/// t + f·x.
struct AccumulateAdd {
  static constexpr const char* kType = "Accumulate";
  static constexpr const char* kVariant = "add";
  float f;
  static AccumulateAdd make(const double* h);
  template <typename V>
  V operator()(V t, V x) const {
    return fma(V(f), x, t);
  }
};

/// t + f·x².
struct AccumulateSquare {
  static constexpr const char* kType = "Accumulate";
  static constexpr const char* kVariant = "add_square";
  float f;
  static AccumulateSquare make(const double* h);
  template <typename V>
  V operator()(V t, V x) const {
    return fma(x * f, x, t);
  }
};

/// The mean of f + 1 values, from the mean t of f values: (f/(f+1))·t + (1/(f+1))·x. Both factors
/// are rounded to float.
struct AccumulateMean {
  static constexpr const char* kType = "Accumulate";
  static constexpr const char* kVariant = "mean";
  float old_share, new_share;
  static AccumulateMean make(const double* h);
  template <typename V>
  V operator()(V t, V x) const {
    return fma(t, V(old_share), x * new_share);
  }
};

/// f·t + (1 − f)·x.
struct AccumulateMovingAverage {
  static constexpr const char* kType = "Accumulate";
  static constexpr const char* kVariant = "moving_average";
  float f, rest;
  static AccumulateMovingAverage make(const double* h);
  template <typename V>
  V operator()(V t, V x) const {
    return fma(V(rest), x, t * f);
  }
};

/// f·t + (1 − f)·x².
struct AccumulateMovingAverageSquare {
  static constexpr const char* kType = "Accumulate";
  static constexpr const char* kVariant = "moving_average_square";
  float f, rest;
  static AccumulateMovingAverageSquare make(const double* h);
  template <typename V>
  V operator()(V t, V x) const {
    return fma(x * rest, x, t * f);
  }
};

/// The larger of f·t and |x|; NaN if one of them is NaN.
struct AccumulateInfinity {
  static constexpr const char* kType = "Accumulate";
  static constexpr const char* kVariant = "infinity";
  float f;
  static AccumulateInfinity make(const double* h);
  template <typename V>
  V operator()(V t, V x) const {
    return max_or_nan(t * f, abs(x));
  }
};

/// (t): f·t; zero if f is zero, even if t is NaN or infinite. The hyperparameter is f.
struct AccumulatorScale {
  static constexpr const char* kType = "AccumulatorScale";
  float f;
  static AccumulatorScale make(const double* h);
  template <typename V>
  V operator()(V t) const {
    return select(V(f) == V(0.0f), V(0.0f), t * f);
  }
};

// AdamUpdater: the operands are (m, v), the hyperparameters are time_step, beta1, beta2 and
// epsilon. cᵢ = 1 − βᵢᵗ, or 1 if time_step is 0. The factors 1/cᵢ are computed once per call and
// rounded to float, so an element needs only one division.

/// (m/c1) / (√(v/c2) + ε).
struct AdamUpdater {
  static constexpr const char* kType = "AdamUpdater";
  static constexpr const char* kVariant = "adam";
  float correction1, correction2, epsilon;
  static AdamUpdater make(const double* h);
  template <typename V>
  V operator()(V m, V v) const {
    return (m * correction1) / (sqrt(v * correction2) + epsilon);
  }
};

/// (m/c1) / (v + ε).
struct AdamaxUpdater {
  static constexpr const char* kType = "AdamUpdater";
  static constexpr const char* kVariant = "adamax";
  float correction1, epsilon;
  static AdamaxUpdater make(const double* h);
  template <typename V>
  V operator()(V m, V v) const {
    return (m * correction1) / (v + epsilon);
  }
};

/// (m, v, w): the result of Updater + d·w. The last hyperparameter is d, the weight decay.
template <typename Updater>
struct UpdaterDecay {
  static constexpr const char* kType = "AdamUpdaterDecay";
  static constexpr const char* kVariant = Updater::kVariant;
  Updater updater;
  float weight_decay;
  static UpdaterDecay make(const double* h) { return {Updater::make(h), static_cast<float>(h[4])}; }
  template <typename V>
  V operator()(V m, V v, V w) const {
    return fma(V(weight_decay), w, updater(m, v));
  }
};
using AdamUpdaterDecay = UpdaterDecay<AdamUpdater>;
using AdamaxUpdaterDecay = UpdaterDecay<AdamaxUpdater>;

/// (t, x): t − r·x. The hyperparameters are r1, r2, learning_rate and max_weight_norm. r =
/// learning_rate·min(√r1, max_weight_norm)/√r2, or learning_rate if r1 or r2 is 0.
struct AdamVarUpdate {
  static constexpr const char* kType = "AdamVarUpdate";
  float rate;
  static AdamVarUpdate make(const double* h);
  template <typename V>
  V operator()(V t, V x) const {
    return fma(V(-rate), x, t);
  }
};

using UpdateFunctors =
    std::tuple<ScaledAdd, AccumulateAdd, AccumulateSquare, AccumulateMean, AccumulateMovingAverage,
               AccumulateMovingAverageSquare, AccumulateInfinity, AccumulatorScale, AdamUpdater,
               AdamaxUpdater, AdamUpdaterDecay, AdamaxUpdaterDecay, AdamVarUpdate>;

}  // namespace sluice::ops::functor
