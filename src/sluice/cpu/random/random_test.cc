// Compares the vector kernels of random numbers with base/rng.h on every instruction set.

#include "sluice/cpu/random/random.h"

#include <gtest/gtest.h>

#include "sluice/cpu/simd/kernel_test_util.h"

namespace sluice::cpu {
namespace {

// First words: 0, some that are no multiples of four, and some whose counters exceed 32 bits.
constexpr uint64_t kFirsts[] = {0, 3, 1001, (uint64_t{1} << 34) - 90, ~uint64_t{0} / 2};

TEST(RandomKernels, WordsAreThoseOfTheDefinition) {
  const Seed key{0xdeadbeef, 12345};
  for (const Isa isa : tested_isas()) {
    for (const uint64_t first : kFirsts) {
      for (const int64_t n : {0, 1, 4, 63, 64, 65, 200}) {
        GuardedBuffer<uint32_t> words(n);
        random_words(key, first, n, words.data(), isa);
        for (int64_t i = 0; i < n; ++i) {
          const uint32_t expected = random_bits(key, first + static_cast<uint64_t>(i));
          ASSERT_EQ(words[i], expected) << to_string(isa) << " first " << first << " word " << i;
        }
      }
    }
  }
}

TEST(RandomKernels, DropoutKeepsTheElementsOfTheDefinition) {
  const Seed key{7, 8};
  std::mt19937 random(3);
  for (const Isa isa : tested_isas()) {
    for (const uint64_t first : kFirsts) {
      for (const double p : {0.0, 0.1, 0.999999}) {
        const ops::DropoutParams params({.p = p});
        const int64_t n = 1 + random() % 300;
        GuardedBuffer<float> x(n), y(n);
        for (float& v : x) v = any_float(random);
        dropout(params, key, first, x.data(), y.data(), n, isa);
        for (int64_t i = 0; i < n; ++i) {
          const uint32_t bits = random_bits(key, first + static_cast<uint64_t>(i)) >> 8;
          ASSERT_TRUE(same(y[i], bits >= params.threshold ? x[i] * params.scale : 0.0f)) << i;
        }
        dropout(params, key, first, x.data(), x.data(), n, isa);
        EXPECT_EQ(first_difference(x.data(), y.data(), n), -1) << "in place";
      }
    }
  }
}

}  // namespace
}  // namespace sluice::cpu
