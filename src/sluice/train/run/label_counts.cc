#include "sluice/train/run/label_counts.h"

#include "sluice/base/numbers/argmax.h"
#include "sluice/base/numbers/slices.h"

namespace sluice::train {

int64_t labelled_rows(const HostTensor& prediction) {
  const Shape& shape = prediction.shape();
  if (prediction.dtype() == i32) return shape.elements();
  return shape.elements() / shape[shape.rank() - 1];
}

void LabelCounts::add(const HostTensor& prediction, std::span<const int32_t> labels,
                      std::optional<int64_t> ignore_index) {
  const int64_t all = labelled_rows(prediction);
  SLUICE_CHECK(std::ssize(labels) <= all);
  const auto count = [&](const auto& class_of) {
    for (size_t i = 0; i < labels.size(); ++i) {
      if (ignore_index == labels[i]) continue;
      ++counted_;
      correct_ += class_of(i) == labels[i];
    }
  };
  if (prediction.dtype() == i32) {
    count([classes = prediction.as<int32_t>()](size_t i) { return classes[i]; });
  } else {
    const Slices rows(prediction.as<float>(), all);
    count([&](size_t i) { return static_cast<int32_t>(argmax(rows[static_cast<int64_t>(i)])); });
  }
}

std::optional<double> LabelCounts::percentage() const {
  if (counted_ == 0) return std::nullopt;
  return 100.0 * static_cast<double>(correct_) / static_cast<double>(counted_);
}

}  // namespace sluice::train
