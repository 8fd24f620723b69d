#pragma once
#include <cstdint>
#include <optional>
#include <span>

#include "sluice/base/host_tensor.h"

namespace sluice::train {

/// The number k of the metric "top5_accuracy".
inline constexpr int64_t kTopClasses = 5;

/// Returns the number of labels that belong to a prediction: its classes, int32, or its rows of
/// scores, all axes but the last one.
int64_t labelled_rows(const HostTensor& prediction);

/// Correct predictions among the labels that count.
class LabelCounts {
 public:
  /// Compares a prediction (Prediction::labels) with the labels of its first rows. Labels equal to
  /// `ignore_index` do not count. A label that is not a class is wrong.
  void add(const HostTensor& prediction, std::span<const int32_t> labels,
           std::optional<int64_t> ignore_index);
  /// Whether the predictions so far have more than kTopClasses scores a row.
  bool has_top() const { return has_top_; }
  /// Percentage of labels with the largest score of their row. Absent if no label counts.
  std::optional<double> percentage() const { return percentage(correct_); }
  /// Percentage of labels with one of the kTopClasses largest scores of their row. Absent if no
  /// label counts.
  std::optional<double> top_percentage() const { return percentage(in_top_); }

 private:
  std::optional<double> percentage(int64_t labels) const;

  bool has_top_ = false;
  int64_t correct_ = 0;
  int64_t in_top_ = 0;
  int64_t counted_ = 0;
};

/// Differences between predictions and floating-point labels.
class LabelErrors {
 public:
  /// Compares elements of a prediction with their labels, two arrays of any floating-point dtype.
  /// `begin` and `count` select elements of the labels; the prediction's are its first ones.
  void add(const HostTensor& prediction, const HostTensor& labels, int64_t begin, int64_t count);
  /// Means over all elements. Absent without elements.
  std::optional<double> mean_absolute() const { return mean(absolute_); }
  std::optional<double> mean_squared() const { return mean(squared_); }

 private:
  std::optional<double> mean(double sum) const;

  double absolute_ = 0;
  double squared_ = 0;
  int64_t counted_ = 0;
};

}  // namespace sluice::train
