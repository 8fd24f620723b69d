#pragma once
#include <fmt/format.h>

#include <cmath>
#include <string>

namespace sluice {

/// Formats a number for a message: the shortest text that reads back exactly. A NaN of either sign
/// is "nan".
inline std::string number_text(double number) {
  return std::isnan(number) ? "nan" : fmt::format("{}", number);
}

}  // namespace sluice
