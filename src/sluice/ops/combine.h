#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "sluice/base/error.h"
#include "sluice/base/shape.h"

namespace sluice::ops {

/// Functors that combine the operands of the members of a group. The caller starts with begin(x)
/// for the first member. It then calls next(accumulated, x) for the other members in ascending
/// order, and last end(accumulated, number of members). The functors define the bits of every
/// collective. T is float, double or an integer; integers wrap around.

namespace internal {
template <typename T, typename F>
T wrapping(T a, T b, F&& f) {
  if constexpr (std::is_floating_point_v<T>) {
    return f(a, b);
  } else {
    return static_cast<T>(f(static_cast<uint64_t>(a), static_cast<uint64_t>(b)));
  }
}
}  // namespace internal

struct CombineAdd {
  template <typename T>
  static T begin(T x) {
    return x;
  }
  template <typename T>
  static T next(T sum, T x) {
    return internal::wrapping(sum, x, [](auto a, auto b) { return a + b; });
  }
  template <typename T>
  static T end(T sum, T) {
    return sum;
  }
};

struct CombineMean : CombineAdd {
  template <typename T>
  static T end(T sum, T members) {
    return sum / members;
  }
};

struct CombineMul : CombineAdd {
  template <typename T>
  static T next(T product, T x) {
    return internal::wrapping(product, x, [](auto a, auto b) { return a * b; });
  }
};

struct CombineMin : CombineAdd {
  template <typename T>
  static T next(T min, T x) {
    return min < x || min != min ? min : x;
  }
};

struct CombineMax : CombineAdd {
  template <typename T>
  static T next(T max, T x) {
    return max > x || max != max ? max : x;
  }
};

struct CombineAnd : CombineAdd {
  template <typename T>
  static T next(T all, T x) {
    return static_cast<T>(all & x);
  }
};

struct CombineOr : CombineAdd {
  template <typename T>
  static T next(T any, T x) {
    return static_cast<T>(any | x);
  }
};

struct CombineSquareAdd : CombineAdd {
  template <typename T>
  static T begin(T x) {
    return internal::wrapping(x, x, [](auto a, auto b) { return a * b; });
  }
  template <typename T>
  static T next(T sum, T x) {
    return CombineAdd::next(sum, begin(x));
  }
};

/// Requires that `op` names a functor that supports `dtype`; Error{kUsage} otherwise. "local" is
/// refused because it does not combine.
inline void require_combines(std::string_view op, DType dtype, std::string_view what) {
  const bool logical = op == "and" || op == "or";
  const bool known = logical || op == "add" || op == "mean" || op == "mul" || op == "min" ||
                     op == "max" || op == "square_add";
  require(known, "{} (C2): op must be add, mean, mul, min, max, and, or or square_add, got '{}'",
          what, op);
  require(logical ? !is_float(dtype) : dtype != boolean && (op != "mean" || is_float(dtype)),
          "{} (C3): the dtype for op '{}' must be {}, got {}", what, op,
          logical        ? "an integer or bool"
          : op == "mean" ? "floating point"
                         : "other than bool",
          name_of(dtype));
}

/// Calls f(functor) with the functor that `op` names. That functor must support T.
template <typename T, typename F>
void visit_combine(std::string_view op, F&& f) {
  if constexpr (std::is_floating_point_v<T>) {
    if (op == "mean") return f(CombineMean{});
  } else {
    if (op == "and") return f(CombineAnd{});
    if (op == "or") return f(CombineOr{});
  }
  if (op == "add") return f(CombineAdd{});
  if (op == "mul") return f(CombineMul{});
  if (op == "min") return f(CombineMin{});
  if (op == "max") return f(CombineMax{});
  SLUICE_CHECK(op == "square_add");
  f(CombineSquareAdd{});
}

}  // namespace sluice::ops
