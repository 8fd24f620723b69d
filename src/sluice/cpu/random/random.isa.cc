#include "sluice/cpu/random/random.h"

#include "sluice/cpu/simd/unit.h"

namespace sluice::cpu::internal {
namespace {

using V = VectorFor<kUnitIsa>::type;
using Int = V::Int;
constexpr int kLanes = V::kLanes;
constexpr int kWords = 64;             // Words of a block.
constexpr int kCounters = kWords / 4;  // A counter has four words.
constexpr int kVectors = kCounters / kLanes;

// Computes philox() of base/rng.h for the 16 counters from `counter` on, on vectors of counters.
void philox_block(Seed key, uint64_t counter, int32_t (&words)[kWords]) {
  alignas(64) int32_t low[kCounters], high[kCounters], by_word[4][kCounters];
  for (int i = 0; i < kCounters; ++i) {
    low[i] = static_cast<int32_t>(counter + static_cast<uint64_t>(i));
    high[i] = static_cast<int32_t>((counter + static_cast<uint64_t>(i)) >> 32);
  }
  Int c0[kVectors], c1[kVectors], c2[kVectors], c3[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    c0[v] = Int::load(low + v * kLanes);
    c1[v] = Int::load(high + v * kLanes);
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
  for (int i = 0; i < kCounters; ++i) {
    for (int w = 0; w < 4; ++w) words[4 * i + w] = by_word[w][i];
  }
}

// Calls f(words, at, count) for parts of n words from word `first` on: words[i] is word first + at
// + i for i < count.
template <typename F>
void for_each_block(Seed key, uint64_t first, int64_t n, F f) {
  alignas(64) int32_t words[kWords];
  for (int64_t at = 0; at < n;) {
    const uint64_t word = first + static_cast<uint64_t>(at);
    const auto skipped = static_cast<int64_t>(word % 4);
    philox_block(key, word / 4, words);
    const int64_t count = n - at < kWords - skipped ? n - at : kWords - skipped;
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
