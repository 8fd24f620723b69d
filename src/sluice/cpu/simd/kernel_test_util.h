#pragma once
#include <bit>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <random>
#include <vector>

#include "sluice/base/flush_to_zero.h"
#include "sluice/cpu/simd/guarded_buffer.h"
#include "sluice/cpu/simd/isa.h"

/// Helpers for the tests of the vector kernels.
namespace sluice::cpu {

/// Returns the instruction sets to test. Prints those that this machine lacks once to stdout.
inline std::vector<Isa> tested_isas() {
  const std::vector<Isa> isas = available_isas();
  static bool told = false;
  for (const Isa isa : {Isa::kAvx2, Isa::kAvx512}) {
    if (isa > isas.back() && !told)
      std::cout << "not tested: this machine lacks " << to_string(isa) << "\n";
  }
  told = true;
  return isas;
}

/// Calls `f` twice: with denormals, and with denormals flushed as in a session.
template <typename F>
void in_both_modes(F&& f) {
  f();
  const FlushToZero flush;
  f();
}

/// Returns whether both have the same bits or both are NaN.
inline bool same(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

/// Returns the index of the first element that differs, or -1.
inline int64_t first_difference(const float* a, const float* b, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    if (!same(a[i], b[i])) return i;
  }
  return -1;
}

/// Returns a random number: mostly within ±2, sometimes tiny, huge, or a zero of either sign.
inline float any_float(std::mt19937& random) {
  const float unit = std::uniform_real_distribution<float>(-2, 2)(random);
  switch (random() % 32) {
    case 0:
      return 0.0f;
    case 1:
      return -0.0f;
    case 2:
      return unit * 0x1p-70f;  // Products of two such numbers underflow.
    case 3:
      return unit * 0x1p-130f;
    case 4:
      return unit * 0x1p40f;
    default:
      return unit;
  }
}

}  // namespace sluice::cpu
