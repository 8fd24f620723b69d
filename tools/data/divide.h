#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "sluice/data/window/indexed_rows.h"
#include "tools/data/user_data.h"

namespace sluice::tool {

/// A division of rows into those for training and those for tests.
struct Parts {
  data::RowOrder order;           ///< First the rows for training, then those for tests.
  int64_t trained = 0;            ///< Rows for training.
  std::vector<bool> trains = {};  ///< Indexed by row; empty if all rows are for tests.
};

/// Divides `all` rows in an order that depends on their number alone. Error{kUsage} if one of both
/// parts would be empty, unless all rows are for tests.
Parts divide(int64_t all, const DataChoice& choice);

/// The classes of the samples.
struct LabelRange {
  int64_t largest = -1;
  std::optional<int32_t> first = {};  ///< Class of a sample for training.
  bool several = false;               ///< Whether samples for training have other labels.

  void add(int32_t label, bool trains);
};

/// Stores both parts of `all` in `data`. Parts of at most 16 MiB are held in memory.
void set_parts(const data::Dataset& all, const Parts& parts, UserData& data);
/// Returns a dataset that is held in memory if it has at most 16 MiB.
UserSamples user_samples(const data::Dataset& samples);

/// Sets UserData::classes. Error{kUsage} for a label that the number of samples does not justify,
/// and for a training on one class alone.
void count_classes(const DataChoice& choice, const LabelRange& labels, UserData& data);

}  // namespace sluice::tool
