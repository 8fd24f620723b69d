#include "sluice/base/numbers/quarter_turns.h"

#include <bit>
#include <cmath>
#include <numbers>

namespace sluice {
namespace {

// 2/π, after 32 zero bits.
constexpr uint32_t kTwoOverPi[] = {0,          0xa2f9836e, 0x4e441529, 0xfc2757d1,
                                   0xf534ddc0, 0xdb629599, 0x3c439041, 0xfe5163ab};

}  // namespace

QuarterTurns quarter_turns(float x) {
  const uint32_t stored = std::bit_cast<uint32_t>(x) & 0x7fffffffu;
  if (stored < 0x3f000000u) return {0, x};  // |x| < 1/2
  // |x| = mantissa·2^(exponent). Bits of 2/π whose product with it is a multiple of 4 are left out.
  const uint64_t mantissa = (stored & 0x7fffffu) | 0x800000u;
  const int exponent = static_cast<int>(stored >> 23) - 150;
  const int first = exponent + 30;
  const int word = first / 32, shift = first % 32;
  const auto bits = [&](int i) {
    const uint64_t two = uint64_t{kTwoOverPi[word + i]} << 32 | kTwoOverPi[word + i + 1];
    return static_cast<uint32_t>(two << shift >> 32);
  };
  // The product modulo 4, as 96 bits. The first two bits are its integer part.
  const uint64_t low = mantissa * bits(2);
  const uint64_t middle = mantissa * bits(1) + (low >> 32);
  const auto high = static_cast<uint32_t>(mantissa * bits(0) + (middle >> 32));
  const uint64_t top = uint64_t{high} << 32 | static_cast<uint32_t>(middle);
  const uint64_t fraction = top << 2 | static_cast<uint32_t>(low) >> 30;
  // Round to nearest: a fraction of at least 1/2 is negative as int64 and increments the quarter.
  const auto quarter = static_cast<int32_t>((top >> 62) + (fraction >> 63));
  const auto rest = static_cast<float>(static_cast<double>(static_cast<int64_t>(fraction)) *
                                       0x1p-64 * (std::numbers::pi / 2));
  if (std::signbit(x)) return {-quarter & 3, -rest};
  return {quarter & 3, rest};
}

}  // namespace sluice
