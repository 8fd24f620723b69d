#include "tools/options.h"

#include <fmt/core.h>

#include <limits>

namespace sluice::tool {
namespace {

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

}  // namespace

int64_t parse_bytes(std::string_view flag, std::string_view text) {
  constexpr std::string_view kUnits = "KMGT";
  const size_t unit = text.empty() ? kUnits.npos : kUnits.find(text.back());
  const int shift = unit == kUnits.npos ? 0 : 10 * static_cast<int>(unit + 1);
  const auto number = read_integer<int64_t>(text.substr(0, text.size() - (shift > 0 ? 1 : 0)));
  require(number && *number >= 0 && *number <= kMost >> shift,
          "{}: must be bytes from 0 to {} (4096, 512K, 64M, 2G, 1T), got '{}'", flag, kMost, text);
  return *number << shift;
}

int64_t parse_threshold(std::string_view flag, std::string_view text) {
  if (text == "inf") return nn::kNeverShard;
  const auto number = read_integer<int64_t>(text);
  require(number && *number >= 0, "{}: must be inf or an integer from 0 to {}, got '{}'", flag,
          kMost, text);
  return *number;
}

std::string show_threshold(int64_t threshold) {
  return threshold == nn::kNeverShard ? "inf" : std::to_string(threshold);
}

std::string show_bytes(int64_t bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  for (; value >= 1024 && unit < 4; ++unit) value /= 1024;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, units[unit]);
}

}  // namespace sluice::tool
