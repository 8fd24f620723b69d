#include "sluice/base/numbers/simd_trigonometry.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "sluice/base/numbers/test_ulps.h"

namespace sluice::simd {
namespace {

TEST(SimdTrigonometry, IsWithinFourUlpOfTheStandardLibraryForAllFloats) {
  EXPECT_LE(worst([](F1 x) { return sin(x); }, [](double x) { return std::sin(x); }, everywhere),
            1.6);
  EXPECT_LE(worst([](F1 x) { return cos(x); }, [](double x) { return std::cos(x); }, everywhere),
            1.6);
  EXPECT_LE(worst([](F1 x) { return tan(x); }, [](double x) { return std::tan(x); }, everywhere),
            3.6);
  EXPECT_LE(worst([](F1 x) { return atan(x); }, [](double x) { return std::atan(x); }, everywhere),
            1.9);
}

TEST(SimdTrigonometry, InversesAndHyperbolicFunctionsAreWithinTwoUlpForAllFloats) {
  EXPECT_LE(worst([](F1 x) { return asin(x); }, [](double x) { return std::asin(x); }, everywhere),
            1.4);
  EXPECT_LE(worst([](F1 x) { return acos(x); }, [](double x) { return std::acos(x); }, everywhere),
            1.2);
  EXPECT_LE(worst([](F1 x) { return sinh(x); }, [](double x) { return std::sinh(x); }, everywhere),
            1.7);
  EXPECT_LE(worst([](F1 x) { return cosh(x); }, [](double x) { return std::cosh(x); }, everywhere),
            1.5);
  EXPECT_LE(
      worst([](F1 x) { return asinh(x); }, [](double x) { return std::asinh(x); }, everywhere),
      1.6);
  EXPECT_LE(
      worst([](F1 x) { return acosh(x); }, [](double x) { return std::acosh(x); }, everywhere),
      1.6);
  EXPECT_LE(
      worst([](F1 x) { return atanh(x); }, [](double x) { return std::atanh(x); }, everywhere),
      1.4);
}

// Floats close to a multiple of π/2 lose the most bits.
TEST(SimdTrigonometry, KeepsItsAccuracyBesideMultiplesOfAQuarterTurn) {
  double worst_sin = 0, worst_cos = 0;
  for (int64_t n = 1; n < 3'000'000'000; n += 1 + n / 50000) {
    const auto middle = static_cast<float>(static_cast<double>(n) * M_PI / 2);
    for (const float x :
         {std::nextafter(middle, 0.0f), middle, std::nextafter(middle, HUGE_VALF)}) {
      worst_sin = std::max(worst_sin, ulps(sin(F1(x)).v, std::sin(static_cast<double>(x))));
      worst_cos = std::max(worst_cos, ulps(cos(F1(-x)).v, std::cos(static_cast<double>(x))));
    }
  }
  EXPECT_LE(worst_sin, 1.6);
  EXPECT_LE(worst_cos, 1.6);
}

TEST(SimdTrigonometry, FindsTheAngleOfEachPoint) {
  std::mt19937 random(4);
  double largest = 0;
  for (int i = 0; i < 2'000'000; ++i) {
    const auto any = [&] {
      const double size = std::exp(std::uniform_real_distribution<>(-20, 20)(random));
      return static_cast<float>(random() % 2 == 0 ? size : -size);
    };
    const float y = any(), x = any();
    largest = std::max(largest, ulps(atan2(F1(y), F1(x)).v, std::atan2(static_cast<double>(y), x)));
  }
  EXPECT_LE(largest, 3.5);
  const float all[] = {0, -0.0f, 1, -1, HUGE_VALF, -HUGE_VALF, NAN};
  for (const float y : all) {
    for (const float x : all) {
      const float want = std::atan2(y, x), got = atan2(F1(y), F1(x)).v;
      EXPECT_TRUE(std::isnan(want) ? std::isnan(got) : ulps(got, static_cast<double>(want)) <= 1)
          << y << ", " << x << ": " << got << ", want " << want;
      if (!std::isnan(want)) {
        EXPECT_EQ(std::signbit(got), std::signbit(want)) << y << ", " << x;
      }
    }
  }
}

TEST(SimdTrigonometry, HasTheLimitsOfTheStandardLibrary) {
  for (const float x : {HUGE_VALF, -HUGE_VALF, NAN}) {
    EXPECT_TRUE(std::isnan(sin(F1(x)).v));
    EXPECT_TRUE(std::isnan(cos(F1(x)).v));
    EXPECT_TRUE(std::isnan(tan(F1(x)).v));
  }
  EXPECT_EQ(atan(F1(HUGE_VALF)).v, static_cast<float>(M_PI / 2));
  for (const float x : {HUGE_VALF, -HUGE_VALF, std::nextafter(1.0f, 2.0f), -1.5f, NAN}) {
    EXPECT_TRUE(std::isnan(asin(F1(x)).v)) << x;
    EXPECT_TRUE(std::isnan(acos(F1(x)).v)) << x;
    EXPECT_TRUE(std::isnan(atanh(F1(x)).v)) << x;
  }
  for (const float x : {std::nextafter(1.0f, 0.0f), 0.0f, -1.0f, -HUGE_VALF, NAN})
    EXPECT_TRUE(std::isnan(acosh(F1(x)).v)) << x;
  EXPECT_EQ(asin(F1(1.0f)).v, static_cast<float>(M_PI / 2));
  EXPECT_EQ(acos(F1(-1.0f)).v, static_cast<float>(M_PI));
  EXPECT_EQ(acos(F1(1.0f)).v, 0.0f);
  EXPECT_EQ(acosh(F1(1.0f)).v, 0.0f);
  EXPECT_EQ(cosh(F1(-0.0f)).v, 1.0f);
  for (const float sign : {1.0f, -1.0f}) {
    EXPECT_EQ(atanh(F1(sign)).v, sign * HUGE_VALF);
    EXPECT_EQ(asinh(F1(sign * HUGE_VALF)).v, sign * HUGE_VALF);
    EXPECT_EQ(sinh(F1(sign * HUGE_VALF)).v, sign * HUGE_VALF);
    EXPECT_EQ(sinh(F1(sign * 89.5f)).v, sign * HUGE_VALF);
    EXPECT_EQ(cosh(F1(sign * HUGE_VALF)).v, HUGE_VALF);
  }
  EXPECT_EQ(acosh(F1(HUGE_VALF)).v, HUGE_VALF);
  for (const F1 y : {sin(F1(-0.0f)), tan(F1(-0.0f)), atan(F1(-0.0f)), asin(F1(-0.0f)),
                     sinh(F1(-0.0f)), asinh(F1(-0.0f)), atanh(F1(-0.0f))}) {
    EXPECT_EQ(y.v, 0.0f);
    EXPECT_TRUE(std::signbit(y.v));
  }
}

}  // namespace
}  // namespace sluice::simd
