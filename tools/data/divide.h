#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "sluice/data/samples.h"
#include "tools/data/user_data.h"

namespace sluice::tool {

/// The shape of `rows` samples.
Shape with_rows(int64_t rows, const Shape& sample);

/// Returns the rows of samples, in the order of `rows`.
data::Samples gathered(const data::Samples& samples, std::span<const int64_t> rows);
/// Returns the samples of both, whose samples have one shape.
data::Samples joined(const data::Samples& a, const data::Samples& b);

/// The rows that are for training, and those for tests.
struct Parts {
  std::vector<int64_t> train;
  std::vector<int64_t> test;
};

/// Divides `all` rows in an order that depends on their number alone. Error{kUsage} if one of both
/// parts would be empty, unless all rows are for tests.
Parts divide(int64_t all, const DataChoice& choice);

/// Sets UserData::classes. Error{kUsage} for a label that the number of samples does not justify,
/// and for a training on one class alone.
void count_classes(const DataChoice& choice, UserData& data);

}  // namespace sluice::tool
