#pragma once
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "sluice/base/error.h"

namespace sluice::tool {

/// A whole number of at most 64 bits and its sign.
struct Whole {
  bool negative = false;
  uint64_t magnitude = 0;
};

/// The whole number that `text` spells in decimal: "12", "-3", "1_000_000", "1e6", "2.5e3". Leading
/// zeros do not change it: "010" is ten. Absent if the text is not such a number, or if it needs
/// more than 64 bits.
std::optional<Whole> read_whole(std::string_view text);

/// The number of read_whole() as a T; absent if T does not hold it.
template <typename T>
std::optional<T> read_integer(std::string_view text) {
  const std::optional<Whole> w = read_whole(text);
  constexpr auto kMost = static_cast<uint64_t>(std::numeric_limits<T>::max());
  if (!w || w->magnitude > kMost || (w->negative && std::numeric_limits<T>::min() == 0))
    return std::nullopt;
  return w->negative ? static_cast<T>(-static_cast<int64_t>(w->magnitude))
                     : static_cast<T>(w->magnitude);
}

/// The integer of an option. Error{kUsage} with the option, the range [least, most] and the text if
/// the text is not an integer of that range.
template <typename T>
T parse_integer(std::string_view option, std::string_view text, T least, T most) {
  const std::optional<T> value = read_integer<T>(text);
  require(value && *value >= least && *value <= most,
          "{}: must be an integer from {} to {}, got '{}'", option, least, most, text);
  return *value;
}

/// The finite real number of an option. Error{kUsage} with the option and the text for other texts,
/// and for a number that float32 would round to 0 or to infinity.
double parse_real(std::string_view option, std::string_view text);

/// The bytes that "4096", "512K", "64M", "2G" or "1T" (powers of 1024) spell. Error{kUsage} for
/// other texts.
int64_t parse_bytes(std::string_view option, std::string_view text);

/// A number of elements, or kNeverShard for "inf". Error{kUsage} for other texts.
int64_t parse_threshold(std::string_view option, std::string_view text);
/// The text that parse_threshold() reads: "512" or "inf".
std::string show_threshold(int64_t threshold);

/// Bytes for people: "10.7 MiB".
std::string show_bytes(int64_t bytes);

}  // namespace sluice::tool
