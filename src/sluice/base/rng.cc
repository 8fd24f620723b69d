#include "sluice/base/rng.h"

#include <cmath>
#include <numbers>

#include "sluice/base/hash.h"

namespace sluice {

std::array<uint32_t, 4> philox(Seed key, uint64_t counter, uint64_t stream) {
  std::array<uint32_t, 4> c{static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32),
                            static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)};
  uint32_t k0 = key.lo;
  uint32_t k1 = key.hi;
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * c[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57u} * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(p0)};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

Seed fold(Seed key, uint64_t data) {
  // Use a separate stream ("fold" in ASCII), so that derived keys never repeat drawn numbers.
  const auto words = philox(key, data, 0x666f6c64u);
  return {words[0], words[1]};
}

Seed fold(Seed key, std::string_view path) { return fold(key, hash64(path)); }

uint32_t random_bits(Seed key, uint64_t index) { return philox(key, index / 4)[index % 4]; }

float to_normal(uint32_t a, uint32_t b) {
  const double u = (static_cast<double>(a) + 1.0) * 0x1p-32;  // (0, 1]
  const double v = static_cast<double>(b) * 0x1p-32;
  return static_cast<float>(std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v));
}

float random_normal(Seed key, uint64_t index) {
  const auto words = philox(key, index / 2);
  return index % 2 == 0 ? to_normal(words[0], words[1]) : to_normal(words[2], words[3]);
}

}  // namespace sluice
