#include "sluice/base/numbers/simd_math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "sluice/base/numbers/test_ulps.h"

namespace sluice::simd {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

TEST(SimdMath, ExpIsWithinOneUlp) {
  EXPECT_LE(worst([](F1 x) { return exp(x); }, [](double x) { return std::exp(x); }, everywhere),
            1.0);
}

TEST(SimdMath, LogIsWithinOneUlp) {
  EXPECT_LE(worst([](F1 x) { return log(x); }, [](double x) { return std::log(x); }, everywhere),
            0.8);
}

TEST(SimdMath, TanhIsWithinTwoUlp) {
  EXPECT_LE(worst([](F1 x) { return tanh(x); }, [](double x) { return std::tanh(x); }, everywhere),
            1.4);
}

TEST(SimdMath, ErfIsWithinTwoUlp) {
  EXPECT_LE(worst([](F1 x) { return erf(x); }, [](double x) { return std::erf(x); }, everywhere),
            1.1);
}

TEST(SimdMath, LogToBaseTwoIsWithinTwoUlp) {
  EXPECT_LE(worst([](F1 x) { return log2(x); }, [](double x) { return std::log2(x); }, everywhere),
            1.1);
  for (int n = -149; n < 128; ++n)
    EXPECT_EQ(log2(F1(std::ldexp(1.0f, n))).v, static_cast<float>(n));
}

TEST(SimdMath, RemaindersAreExact) {
  std::mt19937 random(6);
  const auto any = [&] {
    const auto size =
        static_cast<float>(std::exp(std::uniform_real_distribution<>(-30, 30)(random)));
    return random() % 2 == 0 ? size : -size;
  };
  for (int i = 0; i < 1000000; ++i) {
    const float y = any();
    // Often close to a multiple of y.
    const auto multiple = static_cast<float>(random() % 1000) * y;
    const float x = i % 2 == 0 ? any() : std::nextafter(multiple, i % 4 == 1 ? 0.0f : multiple * 2);
    ASSERT_EQ(fmod(F1(x), F1(y)).v, std::fmod(x, y)) << x << ", " << y;
  }
  // The quotient is rounded up, and the rest below 0 is denormal.
  EXPECT_EQ(fmod(F1(0x1.b468a6p-98f), F1(0x1.5c9516p-107f)).v, 0x1.5c95p-107f);
  const float all[] = {0, -0.0f, 3, -3, 1e-40f, HUGE_VALF, -HUGE_VALF, NAN};
  for (const float x : all) {
    for (const float y : all) {
      const float want = std::fmod(x, y), got = fmod(F1(x), F1(y)).v;
      EXPECT_TRUE(std::isnan(want) ? std::isnan(got)
                                   : got == want && std::signbit(got) == std::signbit(want))
          << x << ", " << y << ": " << got << ", want " << want;
    }
  }
}

TEST(SimdMath, ExpMinusOneIsWithinTwoUlp) {
  EXPECT_LE(
      worst([](F1 x) { return expm1(x); }, [](double x) { return std::expm1(x); }, everywhere),
      1.5);
}

TEST(SimdMath, LogOfOnePlusXIsWithinTwoUlp) {
  EXPECT_LE(
      worst([](F1 x) { return log1p(x); }, [](double x) { return std::log1p(x); }, everywhere), 2);
}

TEST(SimdMath, PowersAreWithinFourUlp) {
  std::mt19937 random(8);
  const auto between = [&](double a, double b) {
    return static_cast<float>(std::uniform_real_distribution<>(a, b)(random));
  };
  double far = 0, near = 0;
  for (int i = 0; i < 3000000; ++i) {
    const float x = i % 2 == 0 ? between(0.5, 2) : std::exp(between(-60, 60));
    const float y = i % 2 == 0 ? between(-127, 127) : between(-1.4, 1.4);
    const double want = std::pow(static_cast<double>(x), static_cast<double>(y));
    if (want < 0x1p-126 || want > 0x1p127) continue;
    const double ulp = std::ldexp(1.0, std::ilogb(want) - 23);
    double& worst_here = std::fabs(std::log2(want)) < 16 ? near : far;
    worst_here = std::max(worst_here, std::fabs(pow(F1(x), F1(y)).v - want) / ulp);
  }
  EXPECT_LE(near, 1.2);
  EXPECT_LE(far, 3.1);
}

TEST(SimdMath, PowersOfSpecialNumbersAreThoseOfTheStandardLibrary) {
  const float inf = HUGE_VALF;
  const float all[] = {0,    -0.0f, 1,     -1,     2,   -2,   0.5f,        3,           -3,
                       2.5f, -2.5f, 1e30f, -1e30f, inf, -inf, 16777217.0f, 33554431.0f, NAN};
  for (const float x : all) {
    for (const float y : all) {
      const auto want =
          static_cast<float>(std::pow(static_cast<double>(x), static_cast<double>(y)));
      const float got = pow(F1(x), F1(y)).v;
      if (std::isnan(want)) {
        EXPECT_TRUE(std::isnan(got)) << x << " to " << y << ": " << got;
      } else {
        EXPECT_TRUE(got == want || std::fabs(got - want) <= 3e-7f * std::fabs(want))
            << x << " to " << y << ": " << got << ", want " << want;
        EXPECT_EQ(std::signbit(got), std::signbit(want)) << x << " to " << y;
      }
    }
  }
}

TEST(SimdMath, SigmoidIsWithinThreeUlp) {
  const auto want = [](double x) { return 1 / (1 + std::exp(-x)); };
  EXPECT_LE(worst([](F1 x) { return sigmoid(x); }, want, [](float x) { return !(x < -88.5f); }),
            2.5);
  EXPECT_EQ(sigmoid(F1(-90.0f)).v, 0.0f);
}

TEST(SimdMath, GeluIsCloseWhereItMatters) {
  double tanh_form = 0, erf_form = 0;
  for (double x = -12; x <= 12; x += 1e-4) {
    const float f = static_cast<float>(x);
    const double d = f;
    const double u = std::sqrt(2 / M_PI) * (d + 0.044715 * d * d * d);
    const double scale = 0x1p-24 * std::max(1.0, std::fabs(d));
    tanh_form =
        std::max(tanh_form, std::fabs(gelu_tanh(F1(f)).v - d / (1 + std::exp(-2 * u))) / scale);
    erf_form = std::max(
        erf_form, std::fabs(gelu_erf(F1(f)).v - 0.5 * d * std::erfc(-d / std::sqrt(2.0))) / scale);
  }
  EXPECT_LE(tanh_form, 4);
  EXPECT_LE(erf_form, 4);
}

TEST(SimdMath, LimitsAreExact) {
  EXPECT_EQ(exp(F1(0.0f)).v, 1.0f);
  EXPECT_EQ(exp(F1(-kInf)).v, 0.0f);
  EXPECT_EQ(exp(F1(kInf)).v, kInf);
  EXPECT_EQ(exp(F1(88.73f)).v, kInf);
  EXPECT_LT(exp(F1(88.72f)).v, kInf);
  EXPECT_EQ(exp(F1(-6018.0f)).v, 0.0f);
  EXPECT_EQ(exp(F1(1e30f)).v, kInf);
  EXPECT_EQ(log(F1(1.0f)).v, 0.0f);
  EXPECT_EQ(log(F1(0.0f)).v, -kInf);
  EXPECT_EQ(log(F1(-0.0f)).v, -kInf);
  EXPECT_EQ(log(F1(kInf)).v, kInf);
  EXPECT_TRUE(std::isnan(log(F1(-1.0f)).v));
  EXPECT_TRUE(std::isnan(log(F1(-kInf)).v));
  EXPECT_EQ(tanh(F1(kInf)).v, 1.0f);
  EXPECT_EQ(tanh(F1(-kInf)).v, -1.0f);
  EXPECT_TRUE(std::signbit(tanh(F1(-0.0f)).v));
  EXPECT_EQ(erf(F1(kInf)).v, 1.0f);
  EXPECT_EQ(erf(F1(-kInf)).v, -1.0f);
  EXPECT_EQ(sigmoid(F1(kInf)).v, 1.0f);
  EXPECT_EQ(sigmoid(F1(-kInf)).v, 0.0f);
  for (const F1 y : {exp(F1(kNaN)), log(F1(kNaN)), tanh(F1(kNaN)), erf(F1(kNaN)), sigmoid(F1(kNaN)),
                     gelu_tanh(F1(kNaN)), gelu_erf(F1(kNaN))}) {
    EXPECT_TRUE(std::isnan(y.v));
  }
}

TEST(Simd, MinAndMaxTakeTheSecondOfNaN) {
  EXPECT_EQ(min(F1(kNaN), F1(1.0f)).v, 1.0f);
  EXPECT_TRUE(std::isnan(min(F1(1.0f), F1(kNaN)).v));
  EXPECT_EQ(max(F1(kNaN), F1(1.0f)).v, 1.0f);
  EXPECT_TRUE(std::isnan(max(F1(1.0f), F1(kNaN)).v));
}

TEST(Simd, PartialLoadAndStoreTouchNothingElse) {
  float cell = 5;
  EXPECT_EQ(F1::load_partial(nullptr, 0).v, 0.0f);
  F1(7.0f).store_partial(&cell, 0);
  EXPECT_EQ(cell, 5.0f);
  F1(7.0f).store_partial(&cell, 3);
  EXPECT_EQ(cell, 7.0f);
}

}  // namespace
}  // namespace sluice::simd
