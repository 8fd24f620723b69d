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

struct Asin {
  static constexpr const char* kType = "Asin";
  template <typename V>
  V operator()(V x) const {
    return simd::asin(x);
  }
};

struct Acos {
  static constexpr const char* kType = "Acos";
  template <typename V>
  V operator()(V x) const {
    return simd::acos(x);
  }
};

struct Sinh {
  static constexpr const char* kType = "Sinh";
  template <typename V>
  V operator()(V x) const {
    return simd::sinh(x);
  }
};

struct Cosh {
  static constexpr const char* kType = "Cosh";
  template <typename V>
  V operator()(V x) const {
    return simd::cosh(x);
  }
};

struct Asinh {
  static constexpr const char* kType = "Asinh";
  template <typename V>
  V operator()(V x) const {
    return simd::asinh(x);
  }
};

struct Acosh {
  static constexpr const char* kType = "Acosh";
  template <typename V>
  V operator()(V x) const {
    return simd::acosh(x);
  }
};

struct Atanh {
  static constexpr const char* kType = "Atanh";
  template <typename V>
  V operator()(V x) const {
    return simd::atanh(x);
  }
};

using TrigonometricFunctors =
    std::tuple<Sin, Cos, Tan, Atan, Atan2, Asin, Acos, Sinh, Cosh, Asinh, Acosh, Atanh>;

}  // namespace sluice::ops::functor
