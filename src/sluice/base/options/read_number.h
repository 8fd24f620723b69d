#pragma once
#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

namespace sluice {

/// An integer of at most 64 bits and its sign.
struct SignedMagnitude {
  bool negative = false;
  uint64_t magnitude = 0;
};

/// Parses a decimal integer: "12", "-3", "1_000_000", "1e6", "2.5e3". Leading zeros do not change
/// it: "010" is ten. Absent for another text, and for a number of more than 64 bits.
std::optional<SignedMagnitude> read_signed_magnitude(std::string_view text);

/// Parses an integer as read_signed_magnitude() does; absent if T cannot hold it.
template <std::integral T>
std::optional<T> read_integer(std::string_view text) {
  const std::optional<SignedMagnitude> n = read_signed_magnitude(text);
  constexpr auto kMax = static_cast<uint64_t>(std::numeric_limits<T>::max());
  if (!n || n->magnitude > kMax || (n->negative && std::numeric_limits<T>::min() == 0))
    return std::nullopt;
  return n->negative ? static_cast<T>(-static_cast<int64_t>(n->magnitude))
                     : static_cast<T>(n->magnitude);
}

/// Parses bytes: "4096", "512K", "64M", "2G" or "1T" (powers of 1024). Absent for another text, and
/// for more than 2^63 - 1 bytes.
std::optional<int64_t> read_bytes(std::string_view text);

/// Parses a finite real number; absent for another text.
std::optional<double> read_real(std::string_view text);

/// Formats bytes for people: "10.7 MiB".
std::string show_bytes(int64_t bytes);

}  // namespace sluice
