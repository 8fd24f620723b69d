#include "sluice/cpu/random/random.h"

#include <algorithm>
#include <cstring>

#include "sluice/cpu/simd/unit.h"

namespace sluice::cpu::internal {
namespace {

using V = VectorFor<kUnitIsa>::type;
using Int = V::Int;
constexpr int kLanes = V::kLanes;
constexpr int kWords = 64;             // Words of a block.
constexpr int kCounters = kWords / 4;  // A counter has four words.
constexpr int kVectors = kCounters / kLanes;
// Blocks that are computed before their words are used: a load waits long for the stores just
// before it.
constexpr int kBlocks = 4;

alignas(64) constexpr int32_t kFirstCounters[kCounters] = {0, 1, 2,  3,  4,  5,  6,  7,
                                                           8, 9, 10, 11, 12, 13, 14, 15};

// Four words of four counters.
typedef int32_t Quad __attribute__((vector_size(16)));

Quad load_quad(const int32_t* p) {
  Quad q;
  std::memcpy(&q, p, sizeof q);
  return q;
}

// Writes the words of four counters, counter by counter. `by_word` points to their first words,
// kCounters apart.
void store_by_counter(const int32_t* by_word, int32_t* words) {
  const Quad a = load_quad(by_word), b = load_quad(by_word + kCounters);
  const Quad c = load_quad(by_word + 2 * kCounters), d = load_quad(by_word + 3 * kCounters);
  const Quad ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
  const Quad ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
  const Quad cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5);
  const Quad cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  const Quad counters[] = {__builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5),
                           __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7),
                           __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5),
                           __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7)};
  std::memcpy(words, counters, sizeof counters);
}

// Computes philox() of base/rng.h for the 16 counters from `counter` on, on vectors of counters.
void philox_block(Seed key, uint64_t counter, int32_t* words) {
  alignas(64) int32_t by_word[4][kCounters];
  Int c0[kVectors], c1[kVectors], c2[kVectors], c3[kVectors];
  const bool carries = static_cast<uint32_t>(counter) > UINT32_MAX - kCounters;
  for (int i = 0; carries && i < kCounters; ++i) {
    by_word[0][i] = static_cast<int32_t>(counter + static_cast<uint64_t>(i));
    by_word[1][i] = static_cast<int32_t>((counter + static_cast<uint64_t>(i)) >> 32);
  }
  for (int v = 0; v < kVectors; ++v) {
    const int first = v * kLanes;
    c0[v] = carries ? Int::load(by_word[0] + first)
                    : Int::load(kFirstCounters + first) + Int(static_cast<int32_t>(counter));
    c1[v] = carries ? Int::load(by_word[1] + first) : Int(static_cast<int32_t>(counter >> 32));
    c2[v] = Int(0);
    c3[v] = Int(0);
  }
  uint32_t k0 = key.lo, k1 = key.hi;
  for (int round = 0; round < 10; ++round) {
    const Int key0(static_cast<int32_t>(k0)), key1(static_cast<int32_t>(k1));
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      Int high0, high1;
      const Int low0 = wide_product(c0[v], 0xD2511F53u, high0);
      const Int low1 = wide_product(c2[v], 0xCD9E8D57u, high1);
      c0[v] = high1 ^ c1[v] ^ key0;
      c1[v] = low1;
      c2[v] = high0 ^ c3[v] ^ key1;
      c3[v] = low0;
    }
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  for (int v = 0; v < kVectors; ++v) {
    c0[v].store(by_word[0] + v * kLanes);
    c1[v].store(by_word[1] + v * kLanes);
    c2[v].store(by_word[2] + v * kLanes);
    c3[v].store(by_word[3] + v * kLanes);
  }
  for (int i = 0; i < kCounters; i += 4) store_by_counter(by_word[0] + i, words + 4 * i);
}

// Calls f(words, at, count) for parts of n words from word `first` on: words[i] is word first + at
// + i for i < count.
template <typename F>
void for_each_block(Seed key, uint64_t first, int64_t n, F f) {
  alignas(64) int32_t words[kBlocks * kWords];
  for (int64_t at = 0; at < n;) {
    const uint64_t word = first + static_cast<uint64_t>(at);
    const auto skipped = static_cast<int64_t>(word % 4);
    const int64_t count = std::min<int64_t>(n - at, kBlocks * kWords - skipped);
    for (int64_t done = 0; done < skipped + count; done += kWords)
      philox_block(key, (word + static_cast<uint64_t>(done)) / 4, words + done);
    f(words + skipped, at, count);
    at += count;
  }
}

// The upper 24 bits of words as numbers, which f32 represents.
V upper_bits(Int words) { return to_float(simd::shift_right<8>(words) & Int(0xffffff)); }

// Loads `count` words; other lanes have any value.
Int load_words(const int32_t* words, int64_t count) {
  if (count >= kLanes) return Int::load(words);
  int32_t some[kLanes] = {};
  for (int64_t i = 0; i < count; ++i) some[i] = words[i];
  return Int::load(some);
}

void store(V v, float* p, int64_t count) {
  if (count >= kLanes) return v.store(p);
  v.store_partial(p, count);
}

}  // namespace

template <>
void RandomKernels<kUnitIsa>::words(Seed key, uint64_t first, int64_t n, uint32_t* words) {
  for_each_block(key, first, n, [&](const int32_t* some, int64_t at, int64_t count) {
    for (int64_t i = 0; i < count; ++i) words[at + i] = static_cast<uint32_t>(some[i]);
  });
}

template <>
void RandomKernels<kUnitIsa>::dropout(const ops::DropoutParams& params, Seed key, uint64_t first,
                                      const float* x, float* y, int64_t n) {
  const V threshold(static_cast<float>(params.threshold)), scale(params.scale);
  for_each_block(key, first, n, [&](const int32_t* words, int64_t at, int64_t count) {
    for (int64_t i = 0; i < count; i += kLanes) {
      const int64_t left = count - i;
      const V v = left >= kLanes ? V::load(x + at + i) : V::load_partial(x + at + i, left);
      const V bits = upper_bits(load_words(words + i, left));
      store(select(bits >= threshold, v * scale, V(0.0f)), y + at + i, left);
    }
  });
}

template <>
void RandomKernels<kUnitIsa>::uniform(float low, float range, Seed key, uint64_t first, float* y,
                                      int64_t n) {
  for_each_block(key, first, n, [&](const int32_t* words, int64_t at, int64_t count) {
    for (int64_t i = 0; i < count; i += kLanes) {
      const V unit = upper_bits(load_words(words + i, count - i)) * 0x1p-24f;
      store(V(low) + V(range) * unit, y + at + i, count - i);
    }
  });
}

}  // namespace sluice::cpu::internal
