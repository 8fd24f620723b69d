#include "sluice/data/loader.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "sluice/base/rng.h"
#include "sluice/data/draw.h"
#include "sluice/data/pipeline/node.h"

namespace sluice::data {
namespace {

constexpr int kMaxLoaderWorkers = 256;
constexpr int kMaxLoaderDepth = 65536;
constexpr int64_t kMaxPart = 64;  ///< Samples that a worker makes at once.
constexpr int64_t kMaxShuffled = std::numeric_limits<uint32_t>::max();

void check(const LoaderOptions& options) {
  require(options.batch >= 1, "loader: batch must be at least 1 sample, got {}", options.batch);
  require(options.workers >= 0 && options.workers <= kMaxLoaderWorkers,
          "loader: workers must be in [0, {}], got {}", kMaxLoaderWorkers, options.workers);
  require(options.depth >= 1 && options.depth <= kMaxLoaderDepth,
          "loader: depth must be in [1, {}] items, got {}", kMaxLoaderDepth, options.depth);
}

/// Returns the dataset that the loader reads: one that can be shuffled if `options` ask for it.
Dataset readable(const Dataset& dataset, const LoaderOptions& options) {
  if (options.shuffle == Shuffle::kNo) return dataset;
  std::optional<int64_t> size = dataset.node()->indexed();
  const bool is_indexed = size.has_value();
  if (!size) size = dataset.size();
  require(size != kForever,
          "loader: a dataset to shuffle must have an end, got one without; use take(n), or "
          "Dataset::shuffle(seed, buffer) and Shuffle::kNo");
  require(size.has_value(),
          "loader: a dataset to shuffle must have a known size, got one without; use cache(), "
          "which holds all elements, or Dataset::shuffle(seed, buffer) and Shuffle::kNo");
  require(*size <= kMaxShuffled,
          "loader: a dataset to shuffle must have at most {} samples, got {}", kMaxShuffled, *size);
  if (is_indexed) return dataset;
  require(!dataset.node()->varies_by_epoch(),
          "loader: a dataset to shuffle must be indexed if a map reads the epoch, got one that is "
          "not; put cache() before the map, or use Shuffle::kNo");
  return dataset.cache();
}

/// Returns the specs of an item of `rows` samples.
Element item_of(const ElementSpecs& sample, int64_t rows) {
  Element item;
  item.names = sample.names;
  for (const TensorSpec& spec : sample.arrays) {
    std::vector<int64_t> dims{rows};
    dims.insert(dims.end(), spec.shape.begin(), spec.shape.end());
    item.arrays.emplace_back(TensorSpec{Shape(std::move(dims)), spec.dtype, {}});
  }
  return item;
}

}  // namespace

void shuffled_order(uint64_t seed, int64_t epoch, std::span<uint32_t> order) {
  random_order(fold(key_of(seed, "loader"), static_cast<uint64_t>(epoch)), order);
}

/// Items that are made ahead, in slots that are allocated once. Item n since restart() is in slot n
/// mod slots. The end of an epoch occupies the slot of an item.
class BatchLoader::Ring {
 public:
  Ring(const Dataset& dataset, LoaderOptions options)
      : options_(std::move(options)), dataset_(readable(dataset, options_)) {
    size_ = dataset_.size();
    // Without shuffling, read a cache() of unknown size pass by pass, because it may never end.
    if (size_ || options_.shuffle == Shuffle::kYes) {
      const std::optional<int64_t> indexed = dataset_.node()->indexed();
      is_indexed_ = indexed.has_value();
      if (is_indexed_) size_ = indexed;
    }
    if (size_) require_item(*size_);
    sample_ = check_static(dataset_, "loader");
    const int threads = is_indexed_ ? options_.workers : std::min(options_.workers, 1);
    slots_.resize(threads == 0 ? 1 : static_cast<size_t>(options_.depth));
    for (Slot& slot : slots_) slot.item = item_of(sample_, options_.batch);
    part_ = threads == 0 ? options_.batch
                         : std::clamp<int64_t>(options_.batch / (2 * threads), 1, kMaxPart);
    if (options_.shuffle == Shuffle::kYes) order_.resize(static_cast<size_t>(*size_));
    for (int i = 0; i < std::max(threads, 1); ++i)
      parts_.push_back(std::make_unique<ItemPart>(*this));
    planned_threads_ = threads;
    restart(0, 0);
  }

  ~Ring() {
    {
      const std::lock_guard lock(mutex_);
      quits_ = abandons_ = true;
    }
    has_work_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  void start_epoch(int64_t epoch, int64_t item) {
    require(epoch >= 0, "loader: epoch must be at least 0, got {}", epoch);
    const std::optional<int64_t> all = items();
    require(item >= 0 && item <= all.value_or(kForever), "loader: item must be {}, got {}",
            all ? fmt::format("in [0, {}]", *all) : "at least 0", item);
    start_threads();
    std::unique_lock lock(mutex_);
    if (at_end_ && !failed_ && item == 0 && epoch == epoch_ + 1) {
      at_end_ = false;
      epoch_ = epoch;
      position_ = 0;
      return;
    }
    // Parts in flight end after their current sample.
    halted_ = abandons_ = true;
    is_made_.wait(lock, [&] { return in_flight_ == 0; });
    lock.unlock();
    restart(epoch, item);
    has_work_.notify_all();
  }

  const Element* next() {
    start_threads();
    std::unique_lock lock(mutex_);
    if (std::exchange(holds_, false)) has_work_.notify_all();
    if (at_end_) return nullptr;
    while (!is_made(taken_)) {
      if (threads_.empty()) {
        SLUICE_CHECK(step(lock, *parts_[0]));
      } else {
        is_made_.wait(lock);
      }
    }
    Slot& slot = slot_of(taken_++);
    holds_ = true;
    if (slot.error != nullptr) {
      at_end_ = failed_ = true;
      std::rethrow_exception(std::exchange(slot.error, nullptr));
    }
    if (slot.rows == 0) {
      at_end_ = true;
      holds_ = false;
      has_work_.notify_all();
      return nullptr;
    }
    ++position_;
    return slot.rows == options_.batch ? &slot.item : &smaller(slot);
  }

  int64_t epoch() const { return epoch_; }
  int64_t position() const { return position_; }
  std::optional<int64_t> samples() const { return size_; }
  std::optional<int64_t> items() const {
    if (!size_ || *size_ == kForever) return size_;
    return *size_ / options_.batch + (keeps() && *size_ % options_.batch != 0 ? 1 : 0);
  }
  std::optional<int64_t> dropped() const {
    if (!size_) return std::nullopt;
    return keeps() || *size_ == kForever ? 0 : *size_ % options_.batch;
  }
  const ElementSpecs& sample_specs() const { return sample_; }
  std::optional<Element> sample(int64_t k) const {
    if (!is_indexed_) return std::nullopt;
    require(k >= 0 && k < *size_, "loader: sample must be in [0, {}), got {}", *size_, k);
    return dataset_.node()->at(k, /*pass=*/0);
  }
  const LoaderOptions& options() const { return options_; }
  const Dataset& dataset() const { return dataset_; }

 private:
  struct Slot {
    Element item;
    int64_t rows = 0;               ///< Samples of the item; 0 is the end of an epoch.
    int64_t left = 0;               ///< Samples that are not made yet.
    int64_t failed_row = kForever;  ///< Sample of `error`.
    std::exception_ptr error;
  };

  /// A part of an item that one thread makes: samples `first` to first + count - 1.
  struct ItemPart {
    explicit ItemPart(const Ring& ring) {
      for (const TensorSpec& spec : ring.sample_.arrays) {
        views.emplace_back(spec, nullptr);
        bytes.push_back(spec.bytes());
      }
      numbers.reserve(static_cast<size_t>(ring.part_));
    }
    Slot* slot = nullptr;
    int64_t epoch = 0;
    int64_t item = 0;
    int64_t first = 0;
    int64_t count = 0;
    std::vector<int64_t> numbers;  ///< The samples' numbers in an indexed dataset.
    std::vector<ArrayView> views;  ///< Memory of one sample.
    std::vector<int64_t> bytes;    ///< Indexed by array.
  };

  bool keeps() const { return options_.remainder == Remainder::kKeep; }
  Slot& slot_of(uint64_t number) { return slots_[number % slots_.size()]; }
  bool is_made(uint64_t number) { return begun_ > number && slot_of(number).left == 0; }
  bool has_room() const { return begun_ - (taken_ - (holds_ ? 1 : 0)) < slots_.size(); }

  /// Requires that `samples` fill an item.
  void require_item(int64_t samples) const {
    if (samples >= options_.batch || (keeps() && samples > 0)) return;
    fail(ErrorKind::kUsage, "0 full batches: {}, the dataset has {}",
         options_.factors.empty() ? fmt::format("an item has {} samples", options_.batch)
                                  : options_.factors,
         samples);
  }

  void restart(int64_t epoch, int64_t item) {
    const std::lock_guard lock(mutex_);
    epoch_ = fills_epoch_ = epoch;
    position_ = fills_item_ = item;
    fills_row_ = 0;
    begun_ = taken_ = 0;
    holds_ = at_end_ = failed_ = halted_ = abandons_ = false;
    needs_order_ = true;
    pass_.reset();
    for (Slot& slot : slots_) slot.error = nullptr;
  }

  void start_threads() {
    if (static_cast<int>(threads_.size()) == planned_threads_) return;
    try {
      while (static_cast<int>(threads_.size()) < planned_threads_) {
        ItemPart& part = *parts_[threads_.size()];
        threads_.emplace_back([this, &part] { work(part); });
      }
    } catch (const std::system_error& e) {
      fail(ErrorKind::kIo, "loader: the system must start {} threads, got: {}; use fewer workers",
           planned_threads_, e.what());
    }
  }

  void work(ItemPart& part) {
    std::unique_lock lock(mutex_);
    while (!quits_) {
      if (!step(lock, part)) has_work_.wait(lock);
    }
  }

  /// Does the next piece of work. Returns false if there is none now.
  bool step(std::unique_lock<std::mutex>& lock, ItemPart& part) {
    if (halted_ || quits_ || is_exclusive_ || !has_room()) return false;
    if (!is_indexed_) return read_item(lock, part);
    if (needs_order_) return make_order(lock);
    const int64_t rows = std::min(options_.batch, *size_ - fills_item_ * options_.batch);
    if (rows <= 0 || (rows < options_.batch && !keeps())) {
      end_epoch();
      return true;
    }
    Slot& slot = slot_of(begun_);
    if (fills_row_ == 0) begin(slot, rows);
    part.slot = &slot;
    part.epoch = fills_epoch_;
    part.item = fills_item_;
    part.first = fills_row_;
    part.count = std::min(part_, rows - fills_row_);
    part.numbers.clear();
    for (int64_t i = 0; i < part.count; ++i) {
      const int64_t index = fills_item_ * options_.batch + fills_row_ + i;
      part.numbers.push_back(order_.empty() ? index : at(order_, index));
    }
    fills_row_ += part.count;
    if (fills_row_ == rows) next_item();
    unlocked(lock, [&] { make_samples(part); });
    slot.left -= part.count;
    is_made_.notify_all();
    return true;
  }

  /// Runs f() without the lock. f() belongs to the items since restart(), which waits for it.
  template <typename F>
  void unlocked(std::unique_lock<std::mutex>& lock, F&& f) {
    ++in_flight_;
    lock.unlock();
    f();
    lock.lock();
    --in_flight_;
  }

  /// Runs f() without the lock. Meanwhile other threads do not begin work.
  template <typename F>
  void exclusively(std::unique_lock<std::mutex>& lock, F&& f) {
    is_exclusive_ = true;
    unlocked(lock, std::forward<F>(f));
    is_exclusive_ = false;
    has_work_.notify_all();
    is_made_.notify_all();
  }

  bool make_order(std::unique_lock<std::mutex>& lock) {
    needs_order_ = false;
    if (order_.empty()) return true;
    exclusively(lock, [&] { shuffled_order(options_.seed, fills_epoch_, order_); });
    return true;
  }

  static void begin(Slot& slot, int64_t rows) {
    slot.rows = slot.left = rows;
    slot.failed_row = kForever;
    slot.error = nullptr;
  }

  void next_item() {
    ++begun_;
    ++fills_item_;
    fills_row_ = 0;
  }

  void end_epoch() {
    begin(slot_of(begun_++), 0);
    ++fills_epoch_;
    fills_item_ = 0;
    needs_order_ = true;
    is_made_.notify_all();
  }

  /// Writes the samples of a part of an item of an indexed dataset.
  void make_samples(ItemPart& part) {
    int64_t row = part.first;
    try {
      for (const int64_t number : part.numbers) {
        if (abandons_) return;
        const size_t arrays =
            dataset_.node()->write_at(number, static_cast<uint64_t>(part.epoch), view(part, row));
        require_arrays(arrays, number);
        ++row;
      }
    } catch (...) {
      keep_error(part, row);
    }
  }

  /// Reads an item of a dataset that is not indexed; or the end of its pass.
  bool read_item(std::unique_lock<std::mutex>& lock, ItemPart& part) {
    Slot& slot = slot_of(begun_);
    begin(slot, options_.batch);
    part.slot = &slot;
    part.epoch = fills_epoch_;
    part.item = fills_item_;
    int64_t rows = 0;
    bool fails = false;
    exclusively(lock, [&] {
      try {
        rows = read_samples(part);
      } catch (...) {
        keep_error(part, 0);
        fails = true;
      }
    });
    if (abandons_) return true;
    slot.left = 0;
    if (fails) {
      ++begun_;
    } else if (rows == 0) {
      pass_.reset();
      end_epoch();
    } else {
      slot.rows = rows;
      next_item();
    }
    return true;
  }

  /// Returns the number of samples of the item: 0 at the end of the pass.
  int64_t read_samples(ItemPart& part) {
    if (!pass_) {
      pass_.emplace(dataset_.iterate(static_cast<uint64_t>(part.epoch)));
      const int64_t skipped = part.item * options_.batch;
      while (pass_->position() < skipped && !abandons_ && pass_->next()) {
      }
    }
    int64_t rows = 0;
    while (rows < options_.batch && !abandons_) {
      const std::optional<Element> sample = pass_->next();
      if (!sample) break;
      const int64_t number = pass_->position() - 1;
      require_arrays(internal::copy_element(*sample, number, view(part, rows)), number);
      ++rows;
    }
    if (rows == options_.batch || abandons_) return rows;
    require_item(pass_->position());
    return keeps() ? rows : 0;
  }

  internal::ElementView view(ItemPart& part, int64_t row) const {
    for (size_t i = 0; i < part.views.size(); ++i) {
      part.views[i].data = part.slot->item.arrays[i].bytes().data() + row * part.bytes[i];
    }
    return {part.views, sample_.names};
  }

  void require_arrays(size_t arrays, int64_t number) const {
    require(arrays == sample_.arrays.size(), "element {}: must have {} arrays, got {}", number,
            sample_.arrays.size(), arrays);
  }

  /// Stores the current exception as the error of sample `row` of an item. Later items are not
  /// begun.
  void keep_error(const ItemPart& part, int64_t row) {
    std::exception_ptr error;
    try {
      throw;
    } catch (Error& e) {
      e.note(fmt::format("making item {} of epoch {}", part.item, part.epoch));
      error = std::current_exception();
    } catch (...) {
      error = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    Slot& slot = *part.slot;
    if (row < slot.failed_row) {
      slot.failed_row = row;
      slot.error = error;
    }
    halted_ = true;
    if (fills_row_ == 0) return;
    // The rest of the item that was begun last is not made.
    Slot& begun = slot_of(begun_);
    begun.left -= begun.rows - fills_row_;
    next_item();
  }

  const Element& smaller(const Slot& slot) {
    if (smaller_.arrays.empty() || smaller_.arrays[0].shape()[0] != slot.rows)
      smaller_ = item_of(sample_, slot.rows);
    for (size_t i = 0; i < smaller_.arrays.size(); ++i) {
      const auto to = smaller_.arrays[i].bytes();
      std::copy_n(slot.item.arrays[i].bytes().begin(), to.size(), to.begin());
    }
    return smaller_;
  }

  const LoaderOptions options_;
  const Dataset dataset_;
  bool is_indexed_ = false;
  std::optional<int64_t> size_;  ///< Samples of an epoch.
  ElementSpecs sample_;
  int64_t part_ = 1;         ///< Samples of a Part, for an indexed dataset.
  int planned_threads_ = 0;  ///< Workers.

  // The consumer alone uses these members.
  int64_t epoch_ = 0;
  int64_t position_ = 0;
  Element smaller_;  ///< The last item of an epoch, if it is smaller.
  std::vector<std::unique_ptr<ItemPart>>
      parts_;  ///< Indexed by worker. Without workers, the consumer uses entry 0.

  // Guarded: only the exclusive thread, or a thread that holds the lock, uses these members.
  std::vector<uint32_t> order_;   ///< Order of the epoch that is filled; empty without shuffling.
  std::optional<Iterator> pass_;  ///< The pass of a dataset that is not indexed.

  std::mutex mutex_;  ///< Guards the members below.
  std::condition_variable has_work_;
  std::condition_variable is_made_;
  std::vector<Slot> slots_;
  uint64_t begun_ = 0;  ///< Items of which all samples are made or in work.
  uint64_t taken_ = 0;  ///< Items that the consumer took.
  bool holds_ = false;  ///< The consumer uses item taken_ - 1.
  bool at_end_ = false;
  bool failed_ = false;
  int64_t fills_epoch_ = 0;  ///< The epoch of the item that is made next,
  int64_t fills_item_ = 0;   ///< its index in the epoch,
  int64_t fills_row_ = 0;    ///< and its first sample that no thread makes.
  bool needs_order_ = true;
  bool is_exclusive_ = false;  ///< One thread reads the dataset in order, or makes an order.
  bool halted_ = false;        ///< Nothing is begun before restart().
  bool quits_ = false;
  int in_flight_ = 0;  ///< Threads that work without the lock.
  std::atomic<bool> abandons_{false};
  std::vector<std::thread> threads_;
};

BatchLoader::BatchLoader(Dataset dataset, LoaderOptions options) {
  check(options);
  ring_ = std::make_unique<Ring>(dataset, std::move(options));
}
BatchLoader::~BatchLoader() = default;
BatchLoader::BatchLoader(BatchLoader&&) noexcept = default;
BatchLoader& BatchLoader::operator=(BatchLoader&&) noexcept = default;

void BatchLoader::start_epoch(int64_t epoch, int64_t item) { ring_->start_epoch(epoch, item); }
const Element* BatchLoader::next() { return ring_->next(); }
int64_t BatchLoader::epoch() const { return ring_->epoch(); }
int64_t BatchLoader::position() const { return ring_->position(); }
std::optional<int64_t> BatchLoader::items() const { return ring_->items(); }
std::optional<int64_t> BatchLoader::dropped() const { return ring_->dropped(); }
std::optional<int64_t> BatchLoader::samples() const { return ring_->samples(); }
const ElementSpecs& BatchLoader::sample_specs() const { return ring_->sample_specs(); }
std::optional<Element> BatchLoader::sample(int64_t k) const { return ring_->sample(k); }
const Dataset& BatchLoader::dataset() const { return ring_->dataset(); }
const LoaderOptions& BatchLoader::options() const { return ring_->options(); }

}  // namespace sluice::data
