#pragma once
#include <limits>
#include <tuple>

#include "sluice/base/numbers/extended_range.h"
#include "sluice/base/numbers/simd_math.h"

/// The float formulas of all elementwise operators, each written once over the vector type V of
/// simd.h. One lane wide (simd::F1), a formula is the reference kernel and so defines the bits.
/// Devices instantiate it wider, in array kernels, epilogues and fused chains.
///
/// `kType` is the operator's type. The arguments of the call operator are the op's first operands
/// in order, the written one first; the result is output 0. A functor with parameters is made by
/// `make`, once per kernel call. `make` takes the hyperparameters as double, in the order of
/// `hypers_of` (hyper_rules.h). `kExact` marks that a dtype which represents the operands, none of
/// them a signaling NaN, represents the result. A new functor must be added to
/// `ElementwiseFunctors` below.
namespace sluice::ops::functor {

// --- arithmetic ---

struct Add {
  static constexpr const char* kType = "Add";
  template <typename V>
  V operator()(V a, V b) const {
    return a + b;
  }
};

/// The sum of two numbers in extended range.
struct AddExtended {
  static constexpr const char* kType = "AddExtended";
  template <typename V>
  V operator()(V a, V b) const {
    return simd::add_extended(a, b);
  }
};

/// The square root of a number in extended range.
struct SqrtExtended {
  static constexpr const char* kType = "SqrtExtended";
  template <typename V>
  V operator()(V x) const {
    return simd::sqrt_extended(x);
  }
};

struct Sub {
  static constexpr const char* kType = "Sub";
  template <typename V>
  V operator()(V a, V b) const {
    return a - b;
  }
};

struct Mul {
  static constexpr const char* kType = "Mul";
  template <typename V>
  V operator()(V a, V b) const {
    return a * b;
  }
};

struct Div {
  static constexpr const char* kType = "Div";
  template <typename V>
  V operator()(V a, V b) const {
    return a / b;
  }
};

/// NaN if an operand is NaN.
struct Max {
  static constexpr const char* kType = "Max";
  static constexpr bool kExact = true;
  template <typename V>
  V operator()(V a, V b) const {
    return select((a > b) | is_nan(a), a, b);
  }
};

struct Min {
  static constexpr const char* kType = "Min";
  static constexpr bool kExact = true;
  template <typename V>
  V operator()(V a, V b) const {
    return select((a < b) | is_nan(a), a, b);
  }
};

struct Neg {
  static constexpr const char* kType = "Neg";
  static constexpr bool kExact = true;
  template <typename V>
  V operator()(V x) const {
    return -x;
  }
};

struct Abs {
  static constexpr const char* kType = "Abs";
  static constexpr bool kExact = true;
  template <typename V>
  V operator()(V x) const {
    return abs(x);
  }
};

/// (x, g): g·sign(x), 0 at 0.
struct AbsGrad {
  static constexpr const char* kType = "AbsGrad";
  static constexpr bool kExact = true;
  template <typename V>
  V operator()(V x, V g) const {
    return select(x > 0.0f, g, select(x < 0.0f, -g, V(0.0f)));
  }
};

struct Sqrt {
  static constexpr const char* kType = "Sqrt";
  template <typename V>
  V operator()(V x) const {
    return sqrt(x);
  }
};

/// (y, g): g / 2y.
struct SqrtGrad {
  static constexpr const char* kType = "SqrtGrad";
  template <typename V>
  V operator()(V y, V g) const {
    return (g * 0.5f) / y;
  }
};

/// As std::pow.
struct Pow {
  static constexpr const char* kType = "Pow";
  template <typename V>
  V operator()(V base, V exponent) const {
    return simd::pow(base, exponent);
  }
};

struct Exp {
  static constexpr const char* kType = "Exp";
  template <typename V>
  V operator()(V x) const {
    return simd::exp(x);
  }
};

struct Log {
  static constexpr const char* kType = "Log";
  template <typename V>
  V operator()(V x) const {
    return simd::log(x);
  }
};

struct Log2 {
  static constexpr const char* kType = "Log2";
  template <typename V>
  V operator()(V x) const {
    return simd::log2(x);
  }
};

struct Log1p {
  static constexpr const char* kType = "Log1p";
  template <typename V>
  V operator()(V x) const {
    return simd::log1p(x);
  }
};

struct Expm1 {
  static constexpr const char* kType = "Expm1";
  template <typename V>
  V operator()(V x) const {
    return simd::expm1(x);
  }
};

struct Rsqrt {
  static constexpr const char* kType = "Rsqrt";
  template <typename V>
  V operator()(V x) const {
    return V(1.0f) / sqrt(x);
  }
};

struct Erf {
  static constexpr const char* kType = "Erf";
  template <typename V>
  V operator()(V x) const {
    return select(is_nan(x), x, simd::erf(x));
  }
};

/// (x, g): g·2/√π·e^(−x²).
struct ErfGrad {
  static constexpr const char* kType = "ErfGrad";
  template <typename V>
  V operator()(V x, V g) const {
    return g * (simd::exp(-(x * x)) * 0x1.20dd76p0f);
  }
};

struct Floor {
  static constexpr const char* kType = "Floor";
  template <typename V>
  V operator()(V x) const {
    return floor(x);
  }
};

struct Ceil {
  static constexpr const char* kType = "Ceil";
  template <typename V>
  V operator()(V x) const {
    return ceil(x);
  }
};

struct Trunc {
  static constexpr const char* kType = "Trunc";
  template <typename V>
  V operator()(V x) const {
    return trunc(x);
  }
};

/// Ties to even.
struct Round {
  static constexpr const char* kType = "Round";
  template <typename V>
  V operator()(V x) const {
    return round_nearest(x);
  }
};

/// ±1; zeros and NaN stay.
struct Sign {
  static constexpr const char* kType = "Sign";
  template <typename V>
  V operator()(V x) const {
    return select(x > 0.0f, V(1.0f), select(x < 0.0f, V(-1.0f), x));
  }
};

// --- predicates and selection ---

/// Predicates return 1 where they hold and 0 elsewhere; kPredicate marks that the result is bool.
/// Comparisons with NaN are false, except NotEqual.
#define SLUICE_COMPARISON(Name, sign)            \
  struct Name {                                  \
    static constexpr const char* kType = #Name;  \
    static constexpr bool kPredicate = true;     \
    template <typename V>                        \
    V operator()(V a, V b) const {               \
      return select(a sign b, V(1.0f), V(0.0f)); \
    }                                            \
  };
SLUICE_COMPARISON(Equal, ==)
SLUICE_COMPARISON(NotEqual, !=)
SLUICE_COMPARISON(Greater, >)
SLUICE_COMPARISON(GreaterOrEqual, >=)
SLUICE_COMPARISON(Less, <)
SLUICE_COMPARISON(LessOrEqual, <=)
#undef SLUICE_COMPARISON

/// The operands of logical functors are 1 or 0.
struct And {
  static constexpr const char* kType = "And";
  static constexpr bool kPredicate = true;
  template <typename V>
  V operator()(V a, V b) const {
    return a * b;
  }
};

struct Or {
  static constexpr const char* kType = "Or";
  static constexpr bool kPredicate = true;
  template <typename V>
  V operator()(V a, V b) const {
    return max(a, b);
  }
};

struct Not {
  static constexpr const char* kType = "Not";
  static constexpr bool kPredicate = true;
  template <typename V>
  V operator()(V x) const {
    return 1.0f - x;
  }
};

struct IsNaN {
  static constexpr const char* kType = "IsNaN";
  static constexpr bool kPredicate = true;
  template <typename V>
  V operator()(V x) const {
    return select(is_nan(x), V(1.0f), V(0.0f));
  }
};

struct IsInf {
  static constexpr const char* kType = "IsInf";
  static constexpr bool kPredicate = true;
  template <typename V>
  V operator()(V x) const {
    return select(abs(x) == std::numeric_limits<float>::infinity(), V(1.0f), V(0.0f));
  }
};

struct IsFinite {
  static constexpr const char* kType = "IsFinite";
  static constexpr bool kPredicate = true;
  template <typename V>
  V operator()(V x) const {
    return select(abs(x) < std::numeric_limits<float>::infinity(), V(1.0f), V(0.0f));
  }
};

/// (condition, lhs, rhs) with a condition of 1 or 0.
struct Where {
  static constexpr const char* kType = "Where";
  static constexpr bool kExact = true;
  template <typename V>
  V operator()(V condition, V lhs, V rhs) const {
    return select(condition == 0.0f, rhs, lhs);
  }
};

// --- activations ---

/// max(0, x); NaN stays NaN.
struct Relu {
  static constexpr const char* kType = "Relu";
  static constexpr bool kExact = true;
  template <typename V>
  V operator()(V x) const {
    return max(V(0.0f), x);
  }
};

/// (y, g): 0 where y ≤ 0, else g. If y is NaN, the result is g.
struct ReluGrad {
  static constexpr const char* kType = "ReluGrad";
  static constexpr bool kExact = true;
  template <typename V>
  V operator()(V y, V g) const {
    return select(y <= 0.0f, V(0.0f), g);
  }
};

/// σ(w) with w = 2√(2/π)(x + 0.044715x³): the factor of x in GELU.
struct GeluGate {
  static constexpr const char* kType = "GeluGate";
  template <typename V>
  V operator()(V x) const {
    return simd::gelu_gate(x);
  }
};

/// (x, s) with s = GeluGate(x): the derivative of GELU, s + x·s·(1 − s)·w′ with the w of GeluGate.
struct GeluSlope {
  static constexpr const char* kType = "GeluSlope";
  template <typename V>
  V operator()(V x, V s) const {
    const V slope = fma(x * x, 0x1.b6676cp-3f, 0x1.988454p0f);
    return fma(x * slope, s * (1.0f - s), s);
  }
};

struct Gelu {
  static constexpr const char* kType = "Gelu";
  template <typename V>
  V operator()(V x) const {
    return simd::gelu_tanh(x);
  }
};

/// (x, g): g times the derivative of GELU at x.
struct GeluGrad {
  static constexpr const char* kType = "GeluGrad";
  template <typename V>
  V operator()(V x, V g) const {
    return g * GeluSlope{}(x, simd::gelu_gate(x));
  }
};

/// erf(x/√2).
struct GeluErfGate {
  static constexpr const char* kType = "GeluErfGate";
  template <typename V>
  V operator()(V x) const {
    return simd::gelu_erf_gate(x);
  }
};

/// (x, e) with e = GeluErfGate(x): x/2·(1 + e).
struct GeluErfValue {
  static constexpr const char* kType = "GeluErfValue";
  template <typename V>
  V operator()(V x, V e) const {
    return simd::gelu_erf(x, e);
  }
};

/// (x, e) with e = GeluErfGate(x): Φ(x) + x·φ(x), with the normal distribution Φ and its density φ.
struct GeluErfSlope {
  static constexpr const char* kType = "GeluErfSlope";
  template <typename V>
  V operator()(V x, V e) const {
    const V density = simd::exp(x * x * -0.5f) * 0x1.988454p-2f;
    return fma(x, density, fma(e, 0.5f, 0.5f));
  }
};

struct GeluErf {
  static constexpr const char* kType = "GeluErf";
  template <typename V>
  V operator()(V x) const {
    return simd::gelu_erf(x);
  }
};

/// (x, g): g times the derivative of GeluErf at x.
struct GeluErfGrad {
  static constexpr const char* kType = "GeluErfGrad";
  template <typename V>
  V operator()(V x, V g) const {
    return g * GeluErfSlope{}(x, simd::gelu_erf_gate(x));
  }
};

struct Swish {
  static constexpr const char* kType = "Swish";
  template <typename V>
  V operator()(V x) const {
    return x * simd::sigmoid(x);
  }
};

/// (x, s) with s = σ(x): s + x·s·(1 − s).
struct SwishSlope {
  static constexpr const char* kType = "SwishSlope";
  template <typename V>
  V operator()(V x, V s) const {
    return fma(x, s * (1.0f - s), s);
  }
};

/// (x, g): g times the derivative of Swish at x.
struct SwishGrad {
  static constexpr const char* kType = "SwishGrad";
  template <typename V>
  V operator()(V x, V g) const {
    return g * SwishSlope{}(x, simd::sigmoid(x));
  }
};

struct Sigmoid {
  static constexpr const char* kType = "Sigmoid";
  template <typename V>
  V operator()(V x) const {
    return simd::sigmoid(x);
  }
};

/// (y, g): g·y·(1 − y).
struct SigmoidGrad {
  static constexpr const char* kType = "SigmoidGrad";
  template <typename V>
  V operator()(V y, V g) const {
    return g * (y * (1.0f - y));
  }
};

struct Tanh {
  static constexpr const char* kType = "Tanh";
  template <typename V>
  V operator()(V x) const {
    return simd::tanh(x);
  }
};

/// (y, g): g·(1 − y²).
struct TanhGrad {
  static constexpr const char* kType = "TanhGrad";
  template <typename V>
  V operator()(V y, V g) const {
    return g * fma(-y, y, V(1.0f));
  }
};

/// ln(1 + eˣ) = max(0, x) + ln(1 + e^-|x|); NaN stays NaN.
struct Softplus {
  static constexpr const char* kType = "Softplus";
  template <typename V>
  V operator()(V x) const {
    return max(V(0.0f), x) + simd::log1p(simd::exp(-abs(x)));
  }
};

/// x where x > 0, else α·(eˣ − 1). The hyperparameter is α.
struct Elu {
  static constexpr const char* kType = "Elu";
  float alpha;
  static Elu make(const double* h);
  template <typename V>
  V operator()(V x) const {
    return select(x > 0.0f, x, simd::expm1(x) * alpha);
  }
};

/// x where x > 0, else the slope times x. The hyperparameter is the slope.
struct LeakyRelu {
  static constexpr const char* kType = "LeakyRelu";
  float slope;
  static LeakyRelu make(const double* h);
  template <typename V>
  V operator()(V x) const {
    return select(x > 0.0f, x, x * slope);
  }
};

/// (x, g): g where x > 0, else g·α·eˣ. The hyperparameter is α.
struct EluGrad {
  static constexpr const char* kType = "EluGrad";
  float alpha;
  static EluGrad make(const double* h);
  template <typename V>
  V operator()(V x, V g) const {
    return select(x > 0.0f, g, g * (simd::exp(x) * alpha));
  }
};

/// (x, g): g where x > 0, else g times the slope. The hyperparameter is the slope.
struct LeakyReluGrad {
  static constexpr const char* kType = "LeakyReluGrad";
  float slope;
  static LeakyReluGrad make(const double* h);
  template <typename V>
  V operator()(V x, V g) const {
    return select(x > 0.0f, g, g * slope);
  }
};

/// Limits x to [min, max]; NaN stays NaN. The hyperparameters are min and max.
struct Clip {
  static constexpr const char* kType = "Clip";
  float low, high;
  static Clip make(const double* h);
  template <typename V>
  V operator()(V x) const {
    return min(V(high), max(V(low), x));
  }
};

/// (y, g): g where min < y < max, else 0. The hyperparameters are min and max.
struct ClipGrad {
  static constexpr const char* kType = "ClipGrad";
  static constexpr bool kExact = true;
  float low, high;
  static ClipGrad make(const double* h);
  template <typename V>
  V operator()(V y, V g) const {
    return select((y > low) & (y < high), g, V(0.0f));
  }
};

// --- conversions ---

/// x in the dtype of the result. Kernels convert operands and results, so nothing is left to do.
struct Cast {
  static constexpr const char* kType = "Cast";
  static constexpr bool kExact = true;
  template <typename V>
  V operator()(V x) const {
    return x;
  }
};

using ElementwiseFunctors =
    std::tuple<Cast, Add, Sub, Mul, Div, Max, Min, Neg, Abs, AbsGrad, Sqrt, SqrtGrad, Exp, Log,
               Relu, ReluGrad, Gelu, GeluGate, GeluSlope, GeluGrad, GeluErf, GeluErfGate,
               GeluErfValue, GeluErfSlope, GeluErfGrad, Swish, SwishSlope, SwishGrad, Sigmoid,
               SigmoidGrad, Tanh, TanhGrad, Clip, ClipGrad, AddExtended, SqrtExtended, Equal,
               NotEqual, Greater, GreaterOrEqual, Less, LessOrEqual, And, Or, Not, IsNaN, IsInf,
               IsFinite, Where, Pow, Log2, Log1p, Expm1, Rsqrt, Erf, ErfGrad, Floor, Ceil, Trunc,
               Round, Sign, Softplus, Elu, EluGrad, LeakyRelu, LeakyReluGrad>;

}  // namespace sluice::ops::functor
