#pragma once
#include <cstdint>
#include <tuple>
#include <type_traits>

/// The formulas of elementwise operators on integers: kType is the operator's type. Reference
/// kernels and the kernels of cpu/ run the same functors. Results wrap around.
namespace sluice::ops::integer {

/// Applies `f` without undefined overflow: as uint64_t, truncated to E.
template <typename E, typename F>
constexpr E wrap(E a, E b, F f) {
  return static_cast<E>(f(static_cast<uint64_t>(a), static_cast<uint64_t>(b)));
}

struct Add {
  static constexpr const char* kType = "Add";
  template <typename E>
  constexpr E operator()(E a, E b) const {
    return wrap(a, b, [](auto x, auto y) { return x + y; });
  }
};
struct Sub {
  static constexpr const char* kType = "Sub";
  template <typename E>
  constexpr E operator()(E a, E b) const {
    return wrap(a, b, [](auto x, auto y) { return x - y; });
  }
};
struct Mul {
  static constexpr const char* kType = "Mul";
  template <typename E>
  constexpr E operator()(E a, E b) const {
    return wrap(a, b, [](auto x, auto y) { return x * y; });
  }
};
/// The quotient, rounded down; 0 for a division by 0.
struct Div {
  static constexpr const char* kType = "Div";
  template <typename E>
  constexpr E operator()(E a, E b) const {
    if (b == 0) return 0;
    const int64_t x = a;
    const int64_t y = b;
    return static_cast<E>(x / y - ((x % y != 0) && ((x < 0) != (y < 0))));
  }
};
/// The rest of the quotient rounded toward zero; 0 for a division by 0.
struct Fmod {
  static constexpr const char* kType = "Fmod";
  template <typename E>
  constexpr E operator()(E a, E b) const {
    return b == 0 ? E{0} : static_cast<E>(int64_t{a} % int64_t{b});
  }
};
/// The rest of the quotient rounded down; 0 for a division by 0.
struct Remainder {
  static constexpr const char* kType = "Remainder";
  template <typename E>
  constexpr E operator()(E a, E b) const {
    const int64_t rest = b == 0 ? 0 : int64_t{a} % int64_t{b};
    return static_cast<E>(rest + (rest != 0 && (rest < 0) != (int64_t{b} < 0) ? int64_t{b} : 0));
  }
};
struct Max {
  static constexpr const char* kType = "Max";
  template <typename E>
  constexpr E operator()(E a, E b) const {
    return a > b ? a : b;
  }
};
struct Min {
  static constexpr const char* kType = "Min";
  template <typename E>
  constexpr E operator()(E a, E b) const {
    return a < b ? a : b;
  }
};
struct Neg {
  static constexpr const char* kType = "Neg";
  template <typename E>
  constexpr E operator()(E x) const {
    return Sub{}(E{0}, x);
  }
};
struct Abs {
  static constexpr const char* kType = "Abs";
  template <typename E>
  constexpr E operator()(E x) const {
    if constexpr (std::is_unsigned_v<E>)
      return x;
    else
      return x < 0 ? Neg{}(x) : x;
  }
};

struct And {
  static constexpr const char* kType = "BitwiseAnd";
  template <typename E>
  constexpr E operator()(E a, E b) const {
    return static_cast<E>(a & b);
  }
};
struct Or {
  static constexpr const char* kType = "BitwiseOr";
  template <typename E>
  constexpr E operator()(E a, E b) const {
    return static_cast<E>(a | b);
  }
};
struct Xor {
  static constexpr const char* kType = "BitwiseXor";
  template <typename E>
  constexpr E operator()(E a, E b) const {
    return static_cast<E>(a ^ b);
  }
};
struct Not {
  static constexpr const char* kType = "BitwiseNot";
  template <typename E>
  constexpr E operator()(E a) const {
    return static_cast<E>(~a);
  }
};

/// Whether a shift by `places` moves all bits out.
template <typename E>
constexpr bool moves_all_out(E places) {
  return std::is_signed_v<E> && places < 0 ? true : places >= static_cast<E>(8 * sizeof(places));
}
struct ShiftLeft {
  static constexpr const char* kType = "ShiftLeft";
  template <typename E>
  constexpr E operator()(E a, E b) const {
    return moves_all_out(b) ? E{0} : static_cast<E>(std::make_unsigned_t<E>(a) << b);
  }
};
/// Repeats the sign.
struct ShiftRight {
  static constexpr const char* kType = "ShiftRight";
  template <typename E>
  constexpr E operator()(E a, E b) const {
    if (!moves_all_out(b)) return static_cast<E>(a >> b);
    return a < 0 ? static_cast<E>(-1) : E{0};
  }
};

struct Equal {
  static constexpr const char* kType = "Equal";
  template <typename E>
  constexpr bool operator()(E a, E b) const {
    return a == b;
  }
};
struct NotEqual {
  static constexpr const char* kType = "NotEqual";
  template <typename E>
  constexpr bool operator()(E a, E b) const {
    return a != b;
  }
};
struct Greater {
  static constexpr const char* kType = "Greater";
  template <typename E>
  constexpr bool operator()(E a, E b) const {
    return a > b;
  }
};
struct GreaterOrEqual {
  static constexpr const char* kType = "GreaterOrEqual";
  template <typename E>
  constexpr bool operator()(E a, E b) const {
    return a >= b;
  }
};
struct Less {
  static constexpr const char* kType = "Less";
  template <typename E>
  constexpr bool operator()(E a, E b) const {
    return a < b;
  }
};
struct LessOrEqual {
  static constexpr const char* kType = "LessOrEqual";
  template <typename E>
  constexpr bool operator()(E a, E b) const {
    return a <= b;
  }
};

using Functors =
    std::tuple<Add, Sub, Mul, Div, Fmod, Remainder, Max, Min, Neg, Abs, And, Or, Xor, Not,
               ShiftLeft, ShiftRight, Equal, NotEqual, Greater, GreaterOrEqual, Less, LessOrEqual>;

}  // namespace sluice::ops::integer
