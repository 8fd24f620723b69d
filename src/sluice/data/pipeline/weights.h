#pragma once
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string_view>
#include <vector>

#include "sluice/base/error.h"
#include "sluice/data/draw.h"

namespace sluice::data::internal {

/// Draws indices with probabilities in proportion to weights.
class WeightTable {
 public:
  /// Error{kUsage}, which `what` begins, unless the weights are finite numbers >= 0 with a finite
  /// sum > 0.
  WeightTable(std::string_view what, const std::vector<double>& weights) {
    ends_.reserve(weights.size());
    double sum = 0;
    for (size_t i = 0; i < weights.size(); ++i) {
      require(std::isfinite(weights[i]) && weights[i] >= 0,
              "{}: weight {} must be a finite number of at least 0, got {}", what, i, weights[i]);
      sum += weights[i];
      ends_.push_back(sum);
      if (weights[i] > 0) last_ = i;
    }
    require(std::isfinite(sum) && sum > 0,
            "{}: the sum of the weights must be finite and above 0, got {}", what, sum);
  }

  /// Returns the index that the random words of `counter` choose, from their first 53 bits. An
  /// index with the weight 0 is never chosen.
  size_t draw(Seed key, uint64_t counter) const {
    const auto words = philox(key, counter);
    const uint64_t bits = (uint64_t{words[0]} << 32 | words[1]) >> 11;
    const double position = static_cast<double>(bits) * 0x1p-53 * ends_.back();
    const auto found = std::upper_bound(ends_.begin(), ends_.end(), position);
    return std::min(static_cast<size_t>(found - ends_.begin()), last_);
  }

 private:
  std::vector<double> ends_;  ///< Sums of the weights up to each index.
  size_t last_ = 0;           ///< The last index with a weight above 0.
};

}  // namespace sluice::data::internal
