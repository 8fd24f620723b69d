#include "sluice/train/metrics/label_counts.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "sluice/base/checked.h"
#include "sluice/base/numbers/slices.h"

namespace sluice::train {
namespace {

// Returns the number of scores of a row that are larger than the score of a label. Of equal scores,
// the first one is the larger one. A NaN is larger than each number.
int64_t rank_of_label(std::span<const float> row, int32_t label) {
  const auto own = static_cast<size_t>(label);
  const float score = row[own];
  int64_t before = 0, after = 0;
  if (std::isnan(score)) {
    for (size_t i = 0; i < own; ++i) before += std::isnan(row[i]);
    return before;
  }
  for (size_t i = 0; i < own; ++i) before += !(row[i] < score);
  for (size_t i = own + 1; i < row.size(); ++i) after += !(row[i] <= score);
  return before + after;
}

}  // namespace

int64_t labelled_rows(const HostTensor& prediction) {
  const Shape& shape = prediction.shape();
  if (prediction.dtype() == i32) return shape.elements();
  return shape.elements() / shape[shape.rank() - 1];
}

void LabelCounts::add(const HostTensor& prediction, std::span<const int32_t> labels,
                      std::optional<int64_t> ignore_index) {
  const int64_t all = labelled_rows(prediction);
  SLUICE_CHECK(std::ssize(labels) <= all);
  const auto count = [&](const auto& rank_of) {
    for (size_t i = 0; i < labels.size(); ++i) {
      if (ignore_index == labels[i]) continue;
      const int64_t rank = rank_of(i);
      ++counted_;
      correct_ += rank == 0;
      in_top_ += rank < kTopClasses;
    }
  };
  if (prediction.dtype() == i32) {
    count([&, classes = prediction.as<int32_t>()](size_t i) {
      return classes[i] == labels[i] ? 0 : kTopClasses;
    });
    return;
  }
  const Slices rows(prediction.as<float>(), all);
  has_top_ = rows.size() > kTopClasses;
  count([&](size_t i) {
    if (labels[i] < 0 || labels[i] >= rows.size()) return std::max(kTopClasses, rows.size());
    return rank_of_label(rows[static_cast<int64_t>(i)], labels[i]);
  });
}

std::optional<double> LabelCounts::percentage(int64_t labels) const {
  if (counted_ == 0) return std::nullopt;
  return 100.0 * static_cast<double>(labels) / static_cast<double>(counted_);
}

void LabelErrors::add(const HostTensor& prediction, const HostTensor& labels, int64_t begin,
                      int64_t count) {
  const std::vector<double> values = prediction.to_doubles(), wanted = labels.to_doubles();
  for (int64_t i = 0; i < count; ++i) {
    const double difference = at(values, i) - at(wanted, begin + i);
    absolute_ += std::abs(difference);
    squared_ += difference * difference;
  }
  counted_ += count;
}

std::optional<double> LabelErrors::mean(double sum) const {
  if (counted_ == 0) return std::nullopt;
  return sum / static_cast<double>(counted_);
}

}  // namespace sluice::train
