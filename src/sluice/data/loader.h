#pragma once
#include <cstdint>
#include <vector>

#include "sluice/data/samples.h"

namespace sluice::data {

struct LoaderOptions {
  int64_t batch = 8;    ///< Samples per batch, that is, per step of the program.
  uint64_t seed = 0;    ///< Seed of the order.
  bool shuffle = true;  ///< If false, every epoch uses the order of the samples.
};

/// Cuts samples into batches. The order of the samples is a pure function of (seed, epoch, number
/// of samples). Samples at the end that do not fill a batch are dropped.
class DataLoader {
 public:
  /// Starts epoch 0. `samples` must outlive the loader. Error{kUsage} if `samples` do not fill
  /// one batch, images are not f32, labels are neither (n) i32 nor (n, …) f32, or their numbers
  /// differ.
  DataLoader(const Samples& samples, LoaderOptions options);

  /// Number of full batches in an epoch.
  int64_t batches() const { return size() / options_.batch; }
  /// Number of samples that each epoch drops.
  int64_t dropped() const { return size() % options_.batch; }
  int64_t epoch() const { return epoch_; }

  /// Puts the samples in the order of epoch `epoch` >= 0 (Fisher-Yates). Does not allocate.
  void start_epoch(int64_t epoch);

  /// Copies a batch of the current epoch to `images` and `labels`. `index` is in [0, batches()).
  /// The leading dimensions of each view multiply to `batch` ((8, …) or (2, 4, …)). The remaining
  /// ones multiply to the elements of a sample ((28, 28) or (784)), or of its label. The view of
  /// the labels has their dtype. Does not allocate.
  /// Error{kUsage} for other shapes, dtypes or indices.
  void fill(int64_t index, const ArrayView& images, const ArrayView& labels) const;

  /// The row of the sample at `position` in the current epoch's order.
  int64_t sample_at(int64_t position) const { return order_[static_cast<size_t>(position)]; }

 private:
  int64_t size() const { return static_cast<int64_t>(order_.size()); }

  const Samples& samples_;
  LoaderOptions options_;
  int64_t epoch_ = 0;
  std::vector<uint32_t> order_;
};

}  // namespace sluice::data
