#pragma once
#include <tuple>

#include "sluice/base/numbers/simd_math.h"

/// Functors. The rules of functors.h hold.
namespace sluice::ops::functor {

struct Fmod {
  static constexpr const char* kType = "Fmod";
  template <typename V>
  V operator()(V x, V y) const {
    return simd::fmod(x, y);
  }
};

struct Remainder {
  static constexpr const char* kType = "Remainder";
  template <typename V>
  V operator()(V x, V y) const {
    const V r = simd::fmod(x, y);
    const V rest = select(((r < 0.0f) & (y > 0.0f)) | ((r > 0.0f) & (y < 0.0f)), r + y, r);
    return select(r == 0.0f, copysign(r, y), rest);
  }
};

using DivisionFunctors = std::tuple<Fmod, Remainder>;

}  // namespace sluice::ops::functor
