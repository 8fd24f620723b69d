#include "tools/options.h"

#include <fmt/core.h>

#include <exception>

#include "sluice/base/error.h"

namespace sluice::tool {

int64_t parse_bytes(const std::string& text) {
  size_t used = 0;
  long long number = -1;
  try {
    number = std::stoll(text, &used);
  } catch (const std::exception&) {
    used = 0;
  }
  const std::string unit = text.substr(used);
  const int shift = unit.empty()  ? 0
                    : unit == "K" ? 10
                    : unit == "M" ? 20
                    : unit == "G" ? 30
                    : unit == "T" ? 40
                                  : -1;
  require(used > 0 && number >= 0 && shift >= 0 && number <= (INT64_MAX >> shift),
          "'{}' is not a number of bytes (4096, 512K, 64M, 2G)", text);
  return static_cast<int64_t>(number) << shift;
}

std::string show_bytes(int64_t bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  for (; value >= 1024 && unit < 4; ++unit) value /= 1024;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, units[unit]);
}

}  // namespace sluice::tool
