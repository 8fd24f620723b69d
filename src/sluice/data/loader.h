#pragma once
#include <cstdint>
#include <vector>

#include "sluice/data/dataset.h"

namespace sluice::data {

struct LoaderOptions {
  int64_t batch = 8;    ///< Samples in one batch: all that one step of the program takes.
  uint64_t seed = 0;    ///< Of the order; with the epoch it decides it alone.
  bool shuffle = true;  ///< Otherwise every epoch goes through the data in its own order.
};

/// Cuts a dataset into batches, in an order that is a pure function of (seed, epoch, samples). The
/// last samples of the order that do not fill a batch are dropped.
class DataLoader {
 public:
  /// `dataset` must outlive the loader. Starts epoch 0. Error{kUsage} if there is not one full
  /// batch, or if images are not f32, labels not i32, or their numbers differ.
  DataLoader(const Dataset& dataset, LoaderOptions options);

  /// Full batches in an epoch.
  int64_t batches() const { return size() / options_.batch; }
  /// Samples that each epoch leaves out.
  int64_t dropped() const { return size() % options_.batch; }
  int64_t epoch() const { return epoch_; }

  /// Puts the samples in the order of epoch `epoch` >= 0 (Fisher-Yates). Allocates nothing.
  void start_epoch(int64_t epoch);

  /// Copies batch `index` of [0, batches()) of the current epoch. Shapes are the batch's
  /// dimensions, then a sample's: the leading dimensions of each view multiply to `batch` ((8, …)
  /// or (2, 4, …)), the rest to the elements of a sample ((28, 28) or (784)). Error{kUsage} for
  /// other shapes, dtypes or indices. Allocates nothing.
  void fill(int64_t index, const ArrayView& images, const ArrayView& labels) const;

  /// The sample (row of the dataset) at `position` of the current epoch's order.
  int64_t sample_at(int64_t position) const { return order_[static_cast<size_t>(position)]; }

 private:
  int64_t size() const { return static_cast<int64_t>(order_.size()); }

  const Dataset& dataset_;
  LoaderOptions options_;
  int64_t epoch_ = 0;
  std::vector<uint32_t> order_;
};

}  // namespace sluice::data
