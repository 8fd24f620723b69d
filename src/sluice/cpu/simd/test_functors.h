#pragma once
#include <array>

#include "sluice/cpu/simd/divide.h"

/// Functors for tests only. They have parameters, three inputs or two outputs.
namespace sluice::cpu::test {

/// fma(b, y, a·x).
struct Blend {
  float a = 1;
  float b = 1;
  template <typename V>
  V operator()(V x, V y) const {
    return fma(V(b), y, V(a) * x);
  }
};

/// w - rate·g with the rate as an input.
struct Step {
  template <typename V>
  V operator()(V w, V g, V rate) const {
    return fma(-rate, g, w);
  }
};

/// Momentum: v ← μ·v + g, w ← w - rate·v.
struct Momentum {
  float mu = 0;
  float rate = 0;
  template <typename V>
  std::array<V, 2> operator()(V w, V v, V g) const {
    const V next = fma(V(mu), v, g);
    return {fma(V(-rate), next, w), next};
  }
};

/// x / by.
struct Divided {
  float by = 1;
  template <typename V>
  V operator()(V x) const {
    return Divider<V>(V(by))(x);
  }
};

}  // namespace sluice::cpu::test
