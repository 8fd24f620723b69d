#pragma once
#include <cmath>
#include <cstddef>
#include <span>

namespace sluice {

/// Returns the index of the first largest element of a row with at least one. A NaN counts as
/// larger than every number, so that the first NaN wins (ops::argmax()).
inline size_t argmax(std::span<const float> row) {
  size_t best = 0;
  for (size_t i = 1; i < row.size() && !std::isnan(row[best]); ++i) {
    if (row[i] > row[best] || std::isnan(row[i])) best = i;
  }
  return best;
}

}  // namespace sluice
