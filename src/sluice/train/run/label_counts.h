#pragma once
#include <cstdint>
#include <optional>
#include <span>

#include "sluice/base/host_tensor.h"

namespace sluice::train {

/// Returns the number of labels that belong to a prediction: its classes, int32, or its rows of
/// scores, all axes but the last one.
int64_t labelled_rows(const HostTensor& prediction);

/// Correct predictions among the labels that count.
class LabelCounts {
 public:
  /// Compares a prediction (Prediction::labels) with the labels of its first rows. Labels equal to
  /// `ignore_index` do not count.
  void add(const HostTensor& prediction, std::span<const int32_t> labels,
           std::optional<int64_t> ignore_index);
  /// Absent if no label counts.
  std::optional<double> percentage() const;

 private:
  int64_t correct_ = 0;
  int64_t counted_ = 0;
};

}  // namespace sluice::train
