#pragma once
#include <tuple>

#include "sluice/base/numbers/simd_trigonometry.h"

/// Functors. The rules of functors.h hold.
namespace sluice::ops::functor {

struct Sin {
  static constexpr const char* kType = "Sin";
  template <typename V>
  V operator()(V x) const {
    return simd::sin(x);
  }
};

struct Cos {
  static constexpr const char* kType = "Cos";
  template <typename V>
  V operator()(V x) const {
    return simd::cos(x);
  }
};

struct Tan {
  static constexpr const char* kType = "Tan";
  template <typename V>
  V operator()(V x) const {
    return simd::tan(x);
  }
};

struct Atan {
  static constexpr const char* kType = "Atan";
  template <typename V>
  V operator()(V x) const {
    return simd::atan(x);
  }
};

struct Atan2 {
  static constexpr const char* kType = "Atan2";
  template <typename V>
  V operator()(V y, V x) const {
    return simd::atan2(y, x);
  }
};

using TrigonometricFunctors = std::tuple<Sin, Cos, Tan, Atan, Atan2>;

}  // namespace sluice::ops::functor
