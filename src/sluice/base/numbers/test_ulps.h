#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>

#include "sluice/base/simd.h"

/// Helpers of tests that measure the errors of functions on floats.
namespace sluice::simd {

/// Returns |got - want| in units in the last place of `want` as a float. The unit is never smaller
/// than that of the smallest normal float.
inline double ulps(float got, double want) {
  if (std::isnan(want)) return std::isnan(got) ? 0 : 1e30;
  const float nearest = static_cast<float>(want);
  if (std::isinf(nearest) || std::isinf(got)) return got == nearest ? 0 : 1e30;
  const int exponent = std::max(want == 0 ? -126 : std::ilogb(want), -126);
  return std::fabs(got - want) / std::ldexp(1.0, exponent - 23);
}

/// Returns the largest error in ULP, over every `step`-th float of both signs for which `domain` is
/// true.
template <typename F, typename Want, typename Domain>
double worst(F f, Want want, Domain domain, uint32_t step = 1009) {
  double result = 0;
  float where = 0;
  for (uint64_t i = 0; i <= 0xffffffffu; i += step) {
    const float x = std::bit_cast<float>(static_cast<uint32_t>(i));
    if (!domain(x)) continue;
    const double error = ulps(f(F1(x)).v, want(static_cast<double>(x)));
    if (error > result) {
      result = error;
      where = x;
    }
  }
  ::testing::Test::RecordProperty("worst_ulp", std::to_string(result));
  EXPECT_LT(result, 1e9) << "at " << where;
  return result;
}
inline const auto everywhere = [](float) { return true; };

}  // namespace sluice::simd
