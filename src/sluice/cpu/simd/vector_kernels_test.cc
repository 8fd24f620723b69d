#include "sluice/cpu/simd/vector_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "sluice/base/numbers/simd_math.h"
#include "sluice/cpu/simd/kernel_test_util.h"
#include "sluice/cpu/simd/test_functors.h"
#include "sluice/ops/division_functors.h"
#include "sluice/ops/functors.h"
#include "sluice/ops/trigonometric_functors.h"

namespace sluice::cpu {
namespace {

using Buffer = GuardedBuffer<float>;
using simd::F1;
namespace functor = ops::functor;

/// Fills a buffer with ordinary and with special numbers.
void fill(Buffer& buffer, std::mt19937& random) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const float special[] = {0,     -0.0f,  kInf,   -kInf, NAN,  0x1p-149f, -0x1p-127f,
                           3e38f, -3e38f, 88.72f, 89,    -104, 1,         -1};
  for (float& x : buffer) {
    x = random() % 4 == 0 ? special[random() % std::size(special)]
                          : std::uniform_real_distribution<float>(-12, 12)(random);
  }
}

template <typename F>
class Unary : public ::testing::Test {};
using UnaryFunctors =
    ::testing::Types<functor::Neg, functor::Abs, functor::Sqrt, functor::Exp, functor::Log,
                     functor::Relu, functor::Gelu, functor::GeluErf, functor::Swish,
                     functor::Sigmoid, functor::Tanh, functor::Asin, functor::Acos, functor::Sinh,
                     functor::Cosh, functor::Asinh, functor::Acosh, functor::Atanh>;
TYPED_TEST_SUITE(Unary, UnaryFunctors);

TYPED_TEST(Unary, EveryLengthHasTheBitsOfOneLane) {
  std::mt19937 random(3);
  const TypeParam f;
  for (int64_t n : {0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 100, 2000}) {
    for (const auto side : {Buffer::Against::kEnd, Buffer::Against::kBegin}) {
      Buffer x(n, side), y(n, side);
      fill(x, random);
      in_both_modes([&] {
        std::vector<float> want(n);
        for (int64_t i = 0; i < n; ++i) want[i] = f(F1(x[i])).v;
        for (const Isa isa : tested_isas()) {
          std::fill(y.begin(), y.end(), 77.0f);
          map1(f, x.data(), y.data(), n, isa);
          const int64_t at = first_difference(y.data(), want.data(), n);
          ASSERT_EQ(at, -1) << to_string(isa) << " " << TypeParam::kType << "(" << x[at]
                            << ") = " << y[at] << " for " << want[at] << ", length " << n;
        }
      });
    }
  }
}

TYPED_TEST(Unary, TheResultMayReplaceTheInput) {
  std::mt19937 random(4);
  const TypeParam f;
  Buffer x(37);
  fill(x, random);
  std::vector<float> want(37);
  map1(f, x.data(), want.data(), 37);
  map1(f, x.data(), x.data(), 37);
  EXPECT_EQ(first_difference(x.data(), want.data(), 37), -1);
}

template <typename F>
class Binary : public ::testing::Test {};
using BinaryFunctors =
    ::testing::Types<functor::Add, functor::Sub, functor::Mul, functor::Div, functor::Max,
                     functor::Min, functor::GeluGrad, functor::TanhGrad, functor::ReluGrad,
                     functor::Fmod, functor::Remainder, test::Blend>;
TYPED_TEST_SUITE(Binary, BinaryFunctors);

TYPED_TEST(Binary, EveryLengthAndBroadcastHasTheBitsOfOneLane) {
  std::mt19937 random(5);
  const TypeParam f;
  for (int64_t n : {1, 5, 8, 16, 19, 40, 333}) {
    for (int steps = 0; steps < 4; ++steps) {
      const MapInput shape[] = {{nullptr, steps & 1}, {nullptr, steps >> 1}};
      Buffer a(shape[0].step != 0 ? n : 1), b(shape[1].step != 0 ? n : 1), y(n);
      fill(a, random);
      fill(b, random);
      in_both_modes([&] {
        std::vector<float> want(n);
        for (int64_t i = 0; i < n; ++i)
          want[i] = f(F1(a[i * shape[0].step]), F1(b[i * shape[1].step])).v;
        for (const Isa isa : tested_isas()) {
          map2(f, {a.data(), shape[0].step}, {b.data(), shape[1].step}, y.data(), n, isa);
          ASSERT_EQ(first_difference(y.data(), want.data(), n), -1)
              << to_string(isa) << " length " << n;
        }
      });
    }
  }
}

TEST(Map, ParametersAreRead) {
  const float x[] = {1, 2, 3}, y[] = {10, 20, 30};
  float out[3];
  for (const Isa isa : available_isas()) {
    map2(test::Blend{2, 0.5f}, {x}, {y}, out, 3, isa);
    EXPECT_EQ(out[0], 7);
    EXPECT_EQ(out[2], 21);
  }
}

TEST(Map, ThreeInputsMixArraysAndOneValue) {
  std::mt19937 random(6);
  Buffer w(45), g(45), rate(1), y(45);
  fill(w, random);
  fill(g, random);
  rate[0] = 0.05f;
  for (const Isa isa : available_isas()) {
    map3(test::Step{}, {w.data()}, {g.data()}, {rate.data(), 0}, y.data(), 45, isa);
    for (int i = 0; i < 45; ++i) EXPECT_TRUE(same(y[i], std::fma(-0.05f, g[i], w[i])));
  }
}

// Divides every mantissa by difficult and by random divisors; also covers the whole float range.
TEST(Map, QuotientsAreCorrectlyRounded) {
  constexpr int64_t kPart = 1 << 16;
  std::vector<float> x(kPart), y(kPart);
  std::mt19937 random(17);
  std::vector<uint32_t> divisors{0x3f800000, 0x3f800001, 0x3fffffff, 0x3ffffffe, 0x3fb504f3,
                                 0x40400000, 0x2f800003, 0x7f000001, 0x00800001, 0x7f800000};
  for (int i = 0; i < 6; ++i) divisors.push_back(0x3f800000u + random() % (1u << 26));
  for (const Isa isa : available_isas()) {
    for (const uint32_t bits : divisors) {
      const test::Divided by{std::bit_cast<float>(bits)};
      const auto check = [&] {
        map1(by, x.data(), y.data(), kPart, isa);
        int64_t wrong = -1;
        for (int64_t i = 0; i < kPart; ++i) wrong = same(y[i], x[i] / by.by) ? wrong : i;
        ASSERT_EQ(wrong, -1) << to_string(isa) << ": " << x[wrong] << " / " << by.by;
      };
      for (uint32_t part = 0; part < (1u << 23) / kPart; ++part) {
        for (uint32_t i = 0; i < kPart; ++i)
          x[i] = std::bit_cast<float>(0x3f800000u + part * static_cast<uint32_t>(kPart) + i);
        check();
      }
      for (uint32_t i = 0; i < kPart; ++i) x[i] = std::bit_cast<float>((i << 16) + i % 1021u);
      check();
      for (uint32_t i = 0; i < kPart; ++i) x[i] = i % 3 == 0 ? 0.0f : static_cast<float>(i);
      check();
    }
  }
}

// Tests every mantissa with an even and an odd exponent, and the whole range of floats.
TEST(Map, RootsAreCorrectlyRounded) {
  const ops::functor::Sqrt root;
  constexpr int64_t kPart = 1 << 16;
  std::vector<float> x(kPart), y(kPart);
  for (const Isa isa : available_isas()) {
    const auto check = [&] {
      map1(root, x.data(), y.data(), kPart, isa);
      for (int64_t i = 0; i < kPart; ++i) {
        const float want = std::sqrt(x[i]);
        ASSERT_TRUE(same(y[i], want)) << to_string(isa) << ": sqrt(" << x[i] << ")";
      }
    };
    for (uint32_t part = 0; part < (1u << 24) / kPart; ++part) {
      for (uint32_t i = 0; i < kPart; ++i)
        x[i] = std::bit_cast<float>(0x3f800000u + part * static_cast<uint32_t>(kPart) + i);
      check();
    }
    for (uint32_t part = 0; part < 64; ++part) {  // All exponents, zeros, infinities, NaNs.
      for (uint32_t i = 0; i < kPart; ++i) x[i] = std::bit_cast<float>((i << 16) + part * 1021u);
      for (float& v : x) {
        if (std::fpclassify(v) == FP_SUBNORMAL) v = 0;
      }
      check();
    }
  }
}

TEST(Map, TwoOutputsReplaceTheirInputs) {
  std::mt19937 random(7);
  constexpr int64_t kSize = 51;
  Buffer w0(kSize), v0(kSize), g(kSize), w(kSize), v(kSize);
  for (Buffer* b : {&w0, &v0, &g}) fill(*b, random);
  const test::Momentum f{0.9f, 0.1f};
  for (const Isa isa : available_isas()) {
    std::copy(w0.begin(), w0.end(), w.begin());
    std::copy(v0.begin(), v0.end(), v.begin());
    const MapInput inputs[] = {{w.data()}, {v.data()}, {g.data()}};
    const MapOutput outputs[] = {{w.data()}, {v.data()}};
    map_kernel<test::Momentum>(isa)(&f, inputs, outputs, 1, kSize);
    for (int64_t i = 0; i < kSize; ++i) {
      const auto want = f(F1(w0[i]), F1(v0[i]), F1(g[i]));
      EXPECT_TRUE(same(w[i], want[0].v) && same(v[i], want[1].v)) << to_string(isa) << " at " << i;
    }
  }
}

}  // namespace
}  // namespace sluice::cpu
