#pragma once
#include <array>
#include <cstdint>
#include <string_view>

namespace sluice {

/// A key for random numbers: the two words of a uint32[2] seed tensor.
struct Seed {
  uint32_t hi = 0;
  uint32_t lo = 0;
  bool operator==(const Seed&) const = default;
};

/// Computes four random words as a pure function of key, counter and stream. Source: Philox4x32-10
/// (Salmon et al., 2011).
std::array<uint32_t, 4> philox(Seed key, uint64_t counter, uint64_t stream = 0);

/// Derives a key from `key` and the number of an update, micro-batch, replica or element.
Seed fold(Seed key, uint64_t data);
/// Derives a key from `key` and a path.
Seed fold(Seed key, std::string_view path);

/// Returns random word number `index` of `key`: element `index % 4` of philox(key, index / 4).
uint32_t random_bits(Seed key, uint64_t index);
/// Maps a random word to a uniform number in [0, 1), from its upper 24 bits.
inline float to_unit(uint32_t bits) { return static_cast<float>(bits >> 8) * 0x1p-24f; }
/// Maps two random words to a standard normal number (Box-Muller), computed in double and rounded
/// once.
float to_normal(uint32_t a, uint32_t b);

/// Standard normal number `index` of `key`, from words 2·index and 2·index + 1.
float random_normal(Seed key, uint64_t index);
/// Uniform number `index` of `key` in [0, 1).
inline float random_unit(Seed key, uint64_t index) { return to_unit(random_bits(key, index)); }

}  // namespace sluice
