// The combinators with threads: prefetch and parallel_map.
#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <system_error>
#include <thread>
#include <utility>

#include "sluice/data/pipeline/node.h"

namespace sluice::data {
namespace {

using internal::CheckedMap;
using internal::Combinator;
using internal::ShapeVariation;
using internal::Stream;

constexpr int kMaxMapWorkers = 256;
constexpr int64_t kMaxQueueDepth = 65536;

/// Elements that threads make ahead of the consumer, in the order of the input. Threads alternate
/// to read the input. Each then maps its element; the consumer waits for the oldest one.
class Ahead final : public Stream {
 public:
  /// `map` may be null.
  Ahead(const char* name, std::unique_ptr<Stream> input, uint64_t pass, const CheckedMap* map,
        int threads, size_t depth)
      : input_(std::move(input)), pass_(pass), map_(map), ring_(depth) {
    try {
      for (int i = 0; i < threads; ++i) {
        threads_.emplace_back([this](const std::stop_token& stop) { work(stop); });
      }
    } catch (const std::system_error& e) {
      fail(ErrorKind::kIo, "{}: the system must start {} threads, got: {}; use fewer workers", name,
           threads, e.what());
    }
  }

  ~Ahead() override {
    for (std::jthread& thread : threads_) thread.request_stop();
    threads_.clear();
  }

  std::optional<Element> next() override {
    std::unique_lock lock(mutex_);
    Slot& slot = ring_[given_ % ring_.size()];
    is_made_.wait(lock, [&] { return slot.is_made || (ended_ && given_ == read_); });
    if (!slot.is_made) return std::nullopt;
    Slot made = std::exchange(slot, {});
    ++given_;
    lock.unlock();
    has_room_.notify_one();
    if (made.error != nullptr) std::rethrow_exception(made.error);
    return std::move(made.element);
  }

 private:
  struct Slot {
    std::optional<Element> element;
    std::exception_ptr error;
    bool is_made = false;
  };

  void work(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (true) {
      has_room_.wait(lock, stop,
                     [&] { return ended_ || (!reading_ && read_ - given_ < ring_.size()); });
      if (ended_ || stop.stop_requested()) return;
      Slot made;
      reading_ = true;
      lock.unlock();
      try {
        made.element = input_->next();
      } catch (...) {
        made.error = std::current_exception();
      }
      lock.lock();
      reading_ = false;
      ended_ = !made.element;
      if (ended_) has_room_.notify_all();
      const bool is_end = ended_ && made.error == nullptr;
      const uint64_t number = is_end ? read_ : read_++;
      if (!ended_ && map_ != nullptr) {
        has_room_.notify_one();
        lock.unlock();
        map(made, number);
        lock.lock();
      }
      made.is_made = !is_end;
      if (made.is_made) ring_[number % ring_.size()] = std::move(made);
      is_made_.notify_one();
    }
  }

  /// Maps an element that this thread alone holds.
  void map(Slot& made, uint64_t number) const {
    try {
      made.element = (*map_)(std::move(*made.element), static_cast<int64_t>(number), pass_);
    } catch (...) {
      made.element.reset();
      made.error = std::current_exception();
    }
  }

  std::unique_ptr<Stream> input_;  ///< Used by the thread that set `reading_`.
  uint64_t pass_;
  const CheckedMap* map_;
  std::mutex mutex_;  ///< Guards the members below.
  std::condition_variable_any has_room_;
  std::condition_variable is_made_;
  std::vector<Slot> ring_;  ///< Element k is in slot k mod size, for k in [given_, read_).
  uint64_t read_ = 0;
  uint64_t given_ = 0;
  bool reading_ = false;
  bool ended_ = false;
  std::vector<std::jthread> threads_;
};

class ParallelMapped final : public Combinator {
 public:
  ParallelMapped(const Dataset& input, CheckedMap map, int workers)
      : Combinator(input), map_(std::move(map)), workers_(workers) {}

  std::unique_ptr<Stream> open(uint64_t pass) const override {
    return std::make_unique<Ahead>("parallel_map", input().open(pass), pass, &map_, workers_,
                                   2 * static_cast<size_t>(workers_));
  }
  std::optional<ElementSpecs> specs() const override { return map_.specs; }
  ShapeVariation variation() const override {
    return map_.specs ? ShapeVariation::kNo : input().variation();
  }
  std::optional<int64_t> indexed() const override { return input().indexed(); }
  Element at(int64_t k, uint64_t pass) const override { return map_(input().at(k, pass), k, pass); }
  bool varies_by_epoch() const override { return map_.epoch_f || input().varies_by_epoch(); }

 private:
  CheckedMap map_;
  int workers_;
};

class Prefetched final : public Combinator {
 public:
  Prefetched(const Dataset& input, int64_t depth)
      : Combinator(input), depth_(static_cast<size_t>(depth)) {}

  std::unique_ptr<Stream> open(uint64_t pass) const override {
    return std::make_unique<Ahead>("prefetch", input().open(pass), pass, nullptr, 1, depth_);
  }
  std::optional<int64_t> indexed() const override { return input().indexed(); }
  Element at(int64_t k, uint64_t pass) const override { return input().at(k, pass); }
  size_t write_at(int64_t k, uint64_t pass, const internal::ElementView& to) const override {
    return input().write_at(k, pass, to);
  }

 private:
  size_t depth_;
};

void check_workers(int workers) {
  require(workers >= 0 && workers <= kMaxMapWorkers,
          "parallel_map: workers must be in [0, {}], got {}", kMaxMapWorkers, workers);
}

}  // namespace

Dataset Dataset::parallel_map(Map f, int workers, std::optional<ElementSpecs> specs) const {
  check_workers(workers);
  if (workers == 0) return map(std::move(f), std::move(specs));
  return Dataset(std::make_shared<const ParallelMapped>(
      *this, internal::checked_map("parallel_map", std::move(f), std::move(specs)), workers));
}

Dataset Dataset::parallel_map(EpochMap f, int workers, MapOptions options) const {
  check_workers(workers);
  if (workers == 0) return map(std::move(f), std::move(options));
  return Dataset(std::make_shared<const ParallelMapped>(
      *this, internal::checked_map("parallel_map", std::move(f), std::move(options)), workers));
}

Dataset Dataset::prefetch(int64_t depth) const {
  require(depth >= 1 && depth <= kMaxQueueDepth,
          "prefetch: depth must be in [1, {}] elements, got {}", kMaxQueueDepth, depth);
  return Dataset(std::make_shared<const Prefetched>(*this, depth));
}

}  // namespace sluice::data
