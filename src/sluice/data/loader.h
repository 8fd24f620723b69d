#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sluice/data/dataset.h"

namespace sluice::data {

/// Writes a random order of the numbers 0 to order.size() - 1, a pure function of (seed, epoch,
/// order.size()). Does not allocate.
void shuffled_order(uint64_t seed, int64_t epoch, std::span<uint32_t> order);

/// Whether each epoch has an order of its own.
enum class Shuffle : uint8_t {
  kNo,   ///< The order of pass e of the dataset in epoch e.
  kYes,  ///< The order of shuffled_order().
};

struct LoaderOptions {
  int64_t batch = 8;                ///< Samples of an item, >= 1.
  Shuffle shuffle = Shuffle::kYes;  ///< The order of the samples of an epoch.
  uint64_t seed = 0;                ///< Seed of the order.
  int workers = 0;  ///< Threads that make items ahead, in [0, 256]; 0: the consumer's thread alone.
  int depth = 3;  ///< Items in memory with workers, in [1, 65536]; the consumer holds one of them.
  Remainder remainder = Remainder::kDrop;  ///< Whether the last, smaller item of an epoch is kept.
  /// Factors of `batch`, such as "micro-batch 4 x accumulate 10 = 40", for errors; may be empty.
  std::string factors = {};
};

/// Cuts the elements of a dataset, here called samples, into items: the fields of a sample with a
/// new first axis of `batch`. The items are a pure function of the dataset, the options and the
/// epoch; `workers` and `depth` do not change them. Epoch e makes samples of pass e, so a
/// Dataset::EpochMap receives e.
///
/// A dataset is *indexed* if each element can be made without those before it. All sources except
/// from_generator() are indexed. So are combinators of indexed datasets except shuffle(),
/// bucket_by_length() and sample_from() of a dataset that ends. cache() of any dataset with an end
/// is indexed. Workers make samples of an indexed dataset at once and call its functions from
/// several threads. They replace the threads of parallel_map() and prefetch(). Other datasets are
/// read in order by one thread.
///
/// Shuffle::kYes requires a dataset with an end. If it is not indexed, the loader holds pass 0 in
/// memory, as cache() does, and refuses an EpochMap. A dataset of unknown size is refused. Call
/// cache() on it to hold all its elements, or use Shuffle::kNo with Dataset::shuffle(seed, buffer)
/// to hold `buffer` of them.
class BatchLoader {
 public:
  /// Starts epoch 0, without reading ahead before the first next() or start_epoch(). Allocates the
  /// memory of all items. Computes the first sample if the dataset does not know its specs, and
  /// reads a pass if only a cache() of it has a size. Error{kUsage} if an option is out of range,
  /// the samples do not fill an item, the dataset cannot be shuffled, or check_static() refuses it.
  explicit BatchLoader(Dataset dataset, LoaderOptions options = {});
  /// Stops and joins the workers; waits for calls of the user's functions that have begun.
  ~BatchLoader();
  BatchLoader(BatchLoader&&) noexcept;
  BatchLoader& operator=(BatchLoader&&) noexcept;

  /// Starts an epoch >= 0 at item `item` in [0, items()]. Workers continue with the following
  /// epoch, so that starting it after the last item does not wait.
  void start_epoch(int64_t epoch, int64_t item = 0);
  /// Returns the next item, or null at the end of the epoch. The item is valid until the next call
  /// of next() or start_epoch(). Throws the error of a user's function once, after the items before
  /// the error; then the epoch ends. Error{kIo} if the system does not start the workers.
  const Element* next();

  int64_t epoch() const;
  /// Number of the item that next() returns next.
  int64_t position() const;
  /// Items of an epoch: kForever without an end, nothing if the size is not known.
  std::optional<int64_t> items() const;
  /// Samples that each epoch drops: 0 if the dataset never ends, nothing if its size is not known.
  std::optional<int64_t> dropped() const;
  /// Samples of an epoch, dropped ones included: kForever without an end, nothing if not known.
  std::optional<int64_t> samples() const;
  /// Specs and names of the fields of a sample.
  const ElementSpecs& sample_specs() const;
  /// The dataset that the loader reads: a cache() of the given one if shuffling requires it.
  const Dataset& dataset() const;
  /// Makes sample k of the dataset in its own order; nothing if the dataset is not indexed.
  /// Error{kUsage} unless k is in [0, samples()).
  std::optional<Element> sample(int64_t k) const;
  const LoaderOptions& options() const;

 private:
  class Ring;
  std::unique_ptr<Ring> ring_;
};

}  // namespace sluice::data
