#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "sluice/base/dtype.h"

namespace sluice::data {

/// Counts values in the default buckets of TensorBoard. Their limits are 0 and ±1e-12 · 1.1^k below
/// 1e20. A bucket has the values from the limit before it up to its own, which is excluded.
class Histogram {
 public:
  Histogram();

  /// Adds the elements of an array. NaN and infinities only count as non-finite.
  void add(DType dtype, std::span<const std::byte> elements);

  int64_t count() const { return count_; }            ///< Number of finite values.
  int64_t non_finite() const { return non_finite_; }  ///< Number of other values.
  double min() const { return min_; }                 ///< 0 without finite values.
  double max() const { return max_; }
  double sum() const { return sum_; }
  double sum_squares() const { return sum_squares_; }

  struct Bucket {
    double limit = 0;  ///< The values are below it.
    double count = 0;
  };
  /// Returns the buckets in ascending order. One bucket replaces neighbours without values. At
  /// least one is returned.
  std::vector<Bucket> buckets() const;

 private:
  template <typename Value>
  void add_all(size_t count, const Value& value);

  std::vector<int64_t> counts_;  ///< Sorted by limit, ascending.
  int64_t count_ = 0;
  int64_t non_finite_ = 0;
  double min_ = 0;
  double max_ = 0;
  double sum_ = 0;
  double sum_squares_ = 0;
};

}  // namespace sluice::data
