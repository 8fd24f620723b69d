#pragma once
#include <tuple>

#include "sluice/base/numbers/simd_math.h"

/// The float formulas of the gradients of reductions; see functors.h for the rules. The operands
/// are (f, x, y): a factor of the lane, an element of the lane, and the reduction's result. A lane
/// is the elements that are reduced to one result.
namespace sluice::ops::functor {

/// The factor itself, for gradients that are equal for all elements of a lane.
struct LaneFactor {
  template <typename V>
  V operator()(V f, V, V) const {
    return f;
  }
};

/// Whether x equals y, or both are NaN, as 1 or 0.
struct Tie {
  template <typename V>
  V operator()(V, V x, V y) const {
    return select((x == y) | (is_nan(x) & is_nan(y)), V(1.0f), V(0.0f));
  }
};

/// (n, x, y): n + Tie. Counts the ties of a lane.
struct CountTies {
  template <typename V>
  V operator()(V n, V x, V y) const {
    return n + Tie{}(n, x, y);
  }
};

/// f where x and y tie, else 0.
struct TieGrad {
  template <typename V>
  V operator()(V f, V x, V y) const {
    return select((x == y) | (is_nan(x) & is_nan(y)), f, V(0.0f));
  }
};

/// f·sign(x); NaN where x is NaN.
struct L1Grad {
  template <typename V>
  V operator()(V f, V x, V) const {
    return select(x > 0.0f, f, select(x < 0.0f, -f, f * x));
  }
};

/// f·x/y, 0 where y is 0.
struct L2Grad {
  template <typename V>
  V operator()(V f, V x, V y) const {
    return select(y == 0.0f, V(0.0f), f * (x / y));
  }
};

/// f·eˣ⁻ʸ.
struct LogSumExpGrad {
  template <typename V>
  V operator()(V f, V x, V y) const {
    return f * simd::exp(x - y);
  }
};

/// 2·f·x.
struct SumSquareGrad {
  template <typename V>
  V operator()(V f, V x, V) const {
    return (f + f) * x;
  }
};

using ReductionFunctors =
    std::tuple<LaneFactor, Tie, CountTies, TieGrad, L1Grad, L2Grad, LogSumExpGrad, SumSquareGrad>;

}  // namespace sluice::ops::functor
