#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string_view>
#include <utility>

#include "sluice/base/rng.h"

namespace sluice::data {

/// Returns the key of the random numbers that `use` draws, from a seed of 64 bits.
inline Seed key_of(uint64_t seed, std::string_view use) {
  return fold({static_cast<uint32_t>(seed >> 32), static_cast<uint32_t>(seed)}, use);
}

/// Returns a uniform number in [0, bound) from one counter value, which yields four random words.
/// If all four are rejected, the last one is used; the chance is below 2^-48 for a million samples.
/// Source: Lemire, "Fast random integer generation in an interval", 2019.
inline uint32_t random_below(Seed key, uint64_t counter, uint32_t bound) {
  const uint32_t threshold = (0u - bound) % bound;
  uint64_t product = 0;
  for (const uint32_t word : philox(key, counter)) {
    product = uint64_t{word} * bound;
    if (static_cast<uint32_t>(product) >= threshold) break;
  }
  return static_cast<uint32_t>(product >> 32);
}

/// As above for 64-bit bounds, from two random words of 64 bits. If both are rejected, the last one
/// is used; the chance is below 2^-40 for bounds below 2^44.
inline uint64_t random_below(Seed key, uint64_t counter, uint64_t bound) {
  __extension__ using Product = unsigned __int128;
  const auto words = philox(key, counter);
  const uint64_t threshold = (0 - bound) % bound;
  Product product = 0;
  for (size_t i = 0; i < 4; i += 2) {
    product = Product{uint64_t{words[i]} << 32 | words[i + 1]} * bound;
    if (static_cast<uint64_t>(product) >= threshold) break;
  }
  return static_cast<uint64_t>(product >> 64);
}

/// Writes a random order of the numbers 0 to order.size() - 1. Does not allocate. Source:
/// Fisher-Yates, with one Philox counter for each swap.
inline void random_order(Seed key, std::span<uint32_t> order) {
  std::iota(order.begin(), order.end(), 0u);
  for (size_t i = order.size(); i-- > 1;) {
    std::swap(order[i], order[random_below(key, i, static_cast<uint32_t>(i + 1))]);
  }
}

/// Returns the sum of the four bytes of a word.
inline uint32_t byte_sum(uint32_t word) {
  const uint32_t pairs = (word & 0x00ff00ffu) + ((word >> 8) & 0x00ff00ffu);
  return (pairs & 0xffffu) + (pairs >> 16);
}
/// Maps the sum of four uniform bytes to a nearly normal number; see Draw::rough_normal.
inline float rough_normal(uint32_t sum) { return (static_cast<float>(sum) - 510.0f) / 147.8f; }

/// Draws the random numbers for one image.
class Draw {
 public:
  explicit Draw(Seed key) : key_(key) {}

  uint32_t word() {
    if (next_ == 4) {
      words_ = philox(key_, counter_++);
      next_ = 0;
    }
    return words_[next_++];
  }
  float between(float low, float high) { return low + (high - low) * to_unit(word()); }
  uint32_t below(uint32_t bound) { return static_cast<uint32_t>((uint64_t{word()} * bound) >> 32); }
  /// Nearly normal with mean 0 and standard deviation 1: the scaled sum of four uniform bytes.
  float rough_normal() { return data::rough_normal(byte_sum(word())); }

 private:
  Seed key_;
  uint64_t counter_ = 0;
  size_t next_ = 4;
  std::array<uint32_t, 4> words_{};
};

}  // namespace sluice::data
