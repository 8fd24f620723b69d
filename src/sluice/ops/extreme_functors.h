#pragma once
#include <tuple>

#include "sluice/base/simd.h"

/// The gradients of maximum and minimum of two operands x0 and x1. The rules of functors.h hold.
/// The operand with the result, or the first of both, receives the gradient; NaN is a result.
namespace sluice::ops::functor {

struct ExtremeGrad {
  static constexpr bool kExact = true;
};

/// The gradient of operand 0: kVariant is option `index`.
struct MaxArgGrad0 : ExtremeGrad {
  static constexpr const char* kType = "MaxArgGrad";
  static constexpr const char* kVariant = "0";
  template <typename V>
  V operator()(V x0, V x1, V g) const {
    return select((x1 > x0) | (is_nan(x1) & (x0 == x0)), V(0.0f), g);
  }
};
struct MaxArgGrad1 : ExtremeGrad {
  static constexpr const char* kType = "MaxArgGrad";
  static constexpr const char* kVariant = "1";
  template <typename V>
  V operator()(V x0, V x1, V g) const {
    return select((x1 > x0) | (is_nan(x1) & (x0 == x0)), g, V(0.0f));
  }
};
struct MinArgGrad0 : ExtremeGrad {
  static constexpr const char* kType = "MinArgGrad";
  static constexpr const char* kVariant = "0";
  template <typename V>
  V operator()(V x0, V x1, V g) const {
    return select((x1 < x0) | (is_nan(x1) & (x0 == x0)), V(0.0f), g);
  }
};
struct MinArgGrad1 : ExtremeGrad {
  static constexpr const char* kType = "MinArgGrad";
  static constexpr const char* kVariant = "1";
  template <typename V>
  V operator()(V x0, V x1, V g) const {
    return select((x1 < x0) | (is_nan(x1) & (x0 == x0)), g, V(0.0f));
  }
};

using ExtremeFunctors = std::tuple<MaxArgGrad0, MaxArgGrad1, MinArgGrad0, MinArgGrad1>;

}  // namespace sluice::ops::functor
