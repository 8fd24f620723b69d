#include "sluice/base/options/read_number.h"

#include <fmt/core.h>

#include <cctype>
#include <charconv>
#include <cmath>

namespace sluice {
namespace {

constexpr int kMaxExponent = 40;  // Numbers of more digits do not fit 64 bits.

bool is_digit(std::string_view text, size_t i) {
  return i < text.size() && std::isdigit(static_cast<unsigned char>(text[i])) != 0;
}

// Parses the exponent after an "e": decimal digits without a minus sign.
std::optional<int> read_exponent(std::string_view text) {
  int value = 0;
  const char* const end = text.data() + text.size();
  if (!is_digit(text, 0)) return std::nullopt;
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || value > kMaxExponent) return std::nullopt;
  return value;
}

}  // namespace

std::optional<SignedMagnitude> read_signed_magnitude(std::string_view text) {
  SignedMagnitude whole{.negative = text.starts_with('-')};
  std::string digits;
  int shift = 0;  // Zeros to append; negative: digits after the point.
  bool fraction = false;
  size_t i = whole.negative ? 1 : 0;
  for (; i < text.size(); ++i) {
    const bool between = !digits.empty() && is_digit(text, i - 1) && is_digit(text, i + 1);
    if (is_digit(text, i)) {
      digits += text[i];
      if (fraction) --shift;
    } else if (text[i] == '.' && between && !fraction) {
      fraction = true;
    } else if (text[i] != '_' || !between) {
      break;
    }
  }
  if (digits.empty()) return std::nullopt;
  if (i < text.size()) {
    if (text[i] != 'e' || !is_digit(text, i - 1)) return std::nullopt;
    const auto exponent = read_exponent(text.substr(i + 1));
    if (!exponent) return std::nullopt;
    shift += *exponent;
  } else if (fraction) {
    return std::nullopt;  // "1.0" is a real number; "1.5e3" is a whole one.
  }
  for (; shift < 0 && !digits.empty(); ++shift) {
    if (digits.back() != '0') return std::nullopt;
    digits.pop_back();
  }
  digits.append(static_cast<size_t>(shift), '0');
  const char* const end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, whole.magnitude);
  if (error != std::errc() || stop != end) return std::nullopt;
  return whole;
}

std::optional<int64_t> read_bytes(std::string_view text) {
  constexpr std::string_view kUnits = "KMGT";
  const size_t unit = text.empty() ? kUnits.npos : kUnits.find(text.back());
  const int shift = unit == kUnits.npos ? 0 : 10 * static_cast<int>(unit + 1);
  const auto number = read_integer<int64_t>(text.substr(0, text.size() - (shift > 0 ? 1 : 0)));
  constexpr int64_t kMaxBytes = std::numeric_limits<int64_t>::max();
  if (!number || *number < 0 || *number > kMaxBytes >> shift) return std::nullopt;
  return *number << shift;
}

std::optional<double> read_real(std::string_view text) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::string show_bytes(int64_t bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  for (; value >= 1024 && unit < 4; ++unit) value /= 1024;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, units[unit]);
}

}  // namespace sluice
