#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sluice/data/dataset.h"

namespace sluice::data {

// The functions below combine indexed datasets without holding their elements. The results are
// indexed.

/// Row numbers, in an order. A dataset may have at most 2^32 - 1 rows.
using RowOrder = std::shared_ptr<const std::vector<uint32_t>>;

/// Returns the order in which rows.shuffle(seed, count) yields the rows 0 to count - 1 of pass 0.
/// Error{kUsage} for more than 2^32 - 1 rows.
RowOrder shuffled_rows(uint64_t seed, int64_t count);

/// Returns rows order[begin], …, order[end - 1] of a dataset.
Dataset choose_rows(const Dataset& all, RowOrder order, int64_t begin, int64_t end);

/// Returns the same elements with other names for their arrays. The specs of `all` must be known.
Dataset with_names(const Dataset& all, std::vector<std::string> names);

/// Returns the elements of all datasets, one dataset after the other. Their specs must be known and
/// equal.
Dataset join_rows(const std::vector<Dataset>& datasets);

/// Reads all elements into memory. Their specs must be known.
Dataset hold_rows(const Dataset& all);

}  // namespace sluice::data
