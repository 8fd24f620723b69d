#pragma once
#include <array>
#include <cstdint>
#include <string_view>

namespace sluice {

/// A key for random numbers: two words, as a uint32[2] seed tensor holds them.
struct Seed {
  uint32_t hi = 0;
  uint32_t lo = 0;
  bool operator==(const Seed&) const = default;
};

/// Philox4x32-10 (Salmon et al., 2011): four random words, a pure function of key and counter.
std::array<uint32_t, 4> philox(Seed key, uint64_t counter, uint64_t stream = 0);

/// A new key from a key and a word of identity (update, micro-batch, replica, index).
Seed fold(Seed key, uint64_t data);
/// A new key from a key and a path.
Seed fold(Seed key, std::string_view path);

/// Word number `index` of the sequence of `key`: element `index % 4` of philox(key, index / 4).
uint32_t random_bits(Seed key, uint64_t index);
/// Uniform in [0, 1) with 24 bits.
inline float to_unit(uint32_t bits) { return static_cast<float>(bits >> 8) * 0x1p-24f; }
/// Standard normal by Box-Muller from two words, computed in double and rounded once.
float to_normal(uint32_t a, uint32_t b);

/// Standard normal number `index` of `key`, from words 2·index and 2·index + 1.
float random_normal(Seed key, uint64_t index);
/// Uniform number `index` of `key` in [0, 1).
inline float random_unit(Seed key, uint64_t index) { return to_unit(random_bits(key, index)); }

}  // namespace sluice
