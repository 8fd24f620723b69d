#include "sluice/cpu/simd/conversions.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "sluice/cpu/simd/kernel_test_util.h"

namespace sluice::cpu {
namespace {

constexpr uint32_t kAll = 1 << 16;  // Number of 16-bit patterns.

float definition(DType dtype, uint16_t bits) {
  return dtype == f16 ? half_to_float(bits) : bfloat_to_float(bits);
}
uint16_t definition(DType dtype, float value) {
  return dtype == f16 ? float_to_half(value) : float_to_bfloat(value);
}

/// Returns the floats at which rounding to `dtype` changes, and their neighbours.
std::vector<float> edges(DType dtype) {
  std::vector<float> result;
  for (uint32_t h = 0; h + 1 < kAll; ++h) {
    const auto here = std::bit_cast<uint32_t>(definition(dtype, static_cast<uint16_t>(h)));
    const auto next = std::bit_cast<uint32_t>(definition(dtype, static_cast<uint16_t>(h + 1)));
    const uint32_t middle = here + (next - here) / 2;
    for (const uint32_t bits : {here - 1, here, here + 1, middle - 1, middle, middle + 1})
      result.push_back(std::bit_cast<float>(bits));
  }
  return result;
}

/// Returns floats of every sign and exponent, with special and with random mantissas.
std::vector<float> floats_of_every_size() {
  std::mt19937 random(11);
  std::vector<float> result;
  for (uint32_t top = 0; top < 512; ++top) {
    for (const uint32_t low : {0x0u, 0x1u, 0xfffu, 0x1000u, 0x1001u, 0x7fffu, 0x8000u, 0x8001u,
                               0x400000u, 0x3fffffu, 0x7fffffu, 0x5fffffu})
      result.push_back(std::bit_cast<float>(top << 23 | low));
    for (int i = 0; i < 500; ++i)
      result.push_back(
          std::bit_cast<float>(top << 23 | static_cast<uint32_t>(random() & 0x7fffffu)));
  }
  return result;
}

class Halves : public ::testing::TestWithParam<DType> {};

TEST_P(Halves, EveryValueWidensToItsBits) {
  std::vector<uint16_t> from(kAll);
  for (uint32_t h = 0; h < kAll; ++h) from[h] = static_cast<uint16_t>(h);
  std::vector<float> to(kAll);
  in_both_modes([&] {
    for (const Isa isa : tested_isas()) {
      std::fill(to.begin(), to.end(), 77.0f);
      widen_kernel(GetParam(), isa)(reinterpret_cast<const std::byte*>(from.data()), to.data(),
                                    kAll);
      for (uint32_t h = 0; h < kAll; ++h) {
        ASSERT_EQ(std::bit_cast<uint32_t>(to[h]),
                  std::bit_cast<uint32_t>(definition(GetParam(), from[h])))
            << to_string(isa) << " of " << h;
      }
    }
  });
}

TEST_P(Halves, EveryValueReturns) {
  std::vector<float> from(kAll);
  std::vector<uint16_t> to(kAll);
  for (uint32_t h = 0; h < kAll; ++h) from[h] = definition(GetParam(), static_cast<uint16_t>(h));
  in_both_modes([&] {
    for (const Isa isa : tested_isas()) {
      narrow_kernel(GetParam(), isa)(from.data(), reinterpret_cast<std::byte*>(to.data()), kAll);
      for (uint32_t h = 0; h < kAll; ++h) {
        if (std::isnan(from[h])) continue;
        ASSERT_EQ(to[h], h) << to_string(isa);
      }
    }
  });
}

TEST_P(Halves, NarrowingRoundsAsDefined) {
  for (const std::vector<float>& from : {edges(GetParam()), floats_of_every_size()}) {
    std::vector<uint16_t> to(from.size());
    in_both_modes([&] {
      for (const Isa isa : tested_isas()) {
        std::fill(to.begin(), to.end(), uint16_t{77});
        narrow_kernel(GetParam(), isa)(from.data(), reinterpret_cast<std::byte*>(to.data()),
                                       static_cast<int64_t>(from.size()));
        for (size_t i = 0; i < from.size(); ++i) {
          ASSERT_EQ(to[i], definition(GetParam(), from[i]))
              << to_string(isa) << " of bits " << std::bit_cast<uint32_t>(from[i]);
        }
        // Rounding narrows and widens; the results may overwrite the operands.
        std::vector<float> want(from.size()), rounded = from;
        const auto n = static_cast<int64_t>(from.size());
        widen_kernel(GetParam(), isa)(reinterpret_cast<const std::byte*>(to.data()), want.data(),
                                      n);
        round_kernel(GetParam(), isa)(rounded.data(), rounded.data(), n);
        EXPECT_EQ(std::memcmp(rounded.data(), want.data(), from.size() * sizeof(float)), 0);
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, Halves, ::testing::Values(f16, bf16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

template <typename T>
void expect_rounded(DType dtype) {
  std::mt19937 random(13);
  std::vector<T> from{0,
                      1,
                      0x7fffffff,
                      static_cast<T>(0x80000000u),
                      static_cast<T>(0xffffffffu),
                      static_cast<T>(0xffffff7fu),
                      static_cast<T>(0xffffff80u)};
  while (from.size() < 10000) from.push_back(static_cast<T>(random() >> random() % 24));
  std::vector<float> to(from.size());
  for (const Isa isa : tested_isas()) {
    widen_kernel(dtype, isa)(reinterpret_cast<const std::byte*>(from.data()), to.data(),
                             static_cast<int64_t>(from.size()));
    for (size_t i = 0; i < from.size(); ++i)
      ASSERT_EQ(to[i], static_cast<float>(from[i])) << to_string(isa) << " of " << from[i];
  }
}

TEST(Conversions, IntegersAreRoundedOnce) {
  expect_rounded<int32_t>(i32);
  expect_rounded<uint32_t>(u32);
}

/// Tests every dtype at many lengths, next to guard pages. kBase defines the expected bits: with
/// one lane it has no partial vectors.
TEST(Conversions, EveryLengthHasTheBitsOfOneLaneAndTouchesNothingElse) {
  std::mt19937 random(12);
  for (const DType dtype : {f32, f16, bf16, i32, u32, u8, boolean}) {
    const int64_t size = size_of(dtype);
    for (int64_t n : {0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 100, 2000}) {
      for (const auto side :
           {GuardedBuffer<float>::Against::kEnd, GuardedBuffer<float>::Against::kBegin}) {
        GuardedBuffer<float> floats(n, side);
        GuardedBuffer<std::byte> stored(n * size, side == GuardedBuffer<float>::Against::kEnd
                                                      ? GuardedBuffer<std::byte>::Against::kEnd
                                                      : GuardedBuffer<std::byte>::Against::kBegin);
        for (std::byte& b : stored)
          b = static_cast<std::byte>(dtype == boolean ? random() % 2 : random());
        for (const Isa isa : tested_isas()) {
          std::vector<float> want(static_cast<size_t>(n));
          widen_kernel(dtype, Isa::kBase)(stored.data(), want.data(), n);
          widen_kernel(dtype, isa)(stored.data(), floats.data(), n);
          ASSERT_EQ(first_difference(floats.data(), want.data(), n), -1)
              << to_string(isa) << " " << name_of(dtype) << " length " << n;
        }
        for (float& x : floats) x = std::bit_cast<float>(static_cast<uint32_t>(random()));
        for (const Isa isa : tested_isas()) {
          std::vector<std::byte> want(static_cast<size_t>(n * size));
          narrow_kernel(dtype, Isa::kBase)(floats.data(), want.data(), n);
          narrow_kernel(dtype, isa)(floats.data(), stored.data(), n);
          ASSERT_TRUE(std::equal(stored.begin(), stored.end(), want.begin()))
              << to_string(isa) << " " << name_of(dtype) << " length " << n;
        }
      }
    }
  }
}

}  // namespace
}  // namespace sluice::cpu
