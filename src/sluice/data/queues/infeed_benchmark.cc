#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "sluice/base/error.h"
#include "sluice/data/feed_queues.h"
#include "sluice/data/pipeline/measure.h"

namespace sluice::data {
namespace {

/// Elements that a thread makes ahead, in slots of pages, as a session does.
class Ring {
 public:
  explicit Ring(InfeedQueue& queue)
      : queue_(queue), slots_(static_cast<size_t>(queue.depth())), pages_(slots_.size()) {
    for (const FeedField& field : queue.fields()) bytes_ += field.spec.bytes();
    for (size_t s = 0; s < slots_.size(); ++s) {
      for (const FeedField& field : queue.fields()) {
        internal::Pages& pages = pages_[s].emplace_back();
        pages.resize(static_cast<size_t>(field.spec.bytes()));
        slots_[s].emplace_back(field.spec, pages.data());
      }
    }
    queue.open({.name = "infeed_benchmark", .fields = queue.fields()});
    thread_ = std::thread([this] { serve(); });
  }

  ~Ring() {
    {
      const std::lock_guard lock(mutex_);
      quits_ = true;
    }
    changed_.notify_all();
    thread_.join();
    queue_.cancel();
  }

  /// Returns the bytes of the next element, or nothing at the end. Throws the error of the queue.
  std::optional<int64_t> take() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return made_ > taken_ || ended_; });
    if (made_ == taken_) {
      if (error_ != nullptr) std::rethrow_exception(std::exchange(error_, nullptr));
      return std::nullopt;
    }
    ++taken_;
    lock.unlock();
    changed_.notify_all();
    return bytes_;
  }

 private:
  void serve() {
    std::unique_lock lock(mutex_);
    while (!ended_) {
      changed_.wait(lock, [&] { return quits_ || made_ - taken_ < slots_.size(); });
      if (quits_) return;
      const std::vector<ArrayView>& slot = slots_[made_ % slots_.size()];
      lock.unlock();
      bool is_made = false;
      std::exception_ptr error;
      try {
        is_made = queue_.next(slot);
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      error_ = error;
      ended_ = !is_made;
      if (is_made) ++made_;
      changed_.notify_all();
    }
  }

  InfeedQueue& queue_;
  std::vector<std::vector<ArrayView>> slots_;
  std::vector<std::vector<internal::Pages>> pages_;  ///< By slot and field.
  int64_t bytes_ = 0;                                ///< Bytes of an element.
  std::mutex mutex_;                                 ///< Guards the members below.
  std::condition_variable changed_;
  uint64_t made_ = 0;
  uint64_t taken_ = 0;
  bool ended_ = false;
  bool quits_ = false;
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace

BenchmarkResult infeed_benchmark(InfeedQueue& queue, const BenchmarkOptions& options) {
  internal::check_benchmark("infeed_benchmark", options);
  require(options.copy, "infeed_benchmark: copy must be true, because a feed copies; got false");
  Ring ring(queue);
  return internal::measure(options, [&] { return ring.take(); });
}

}  // namespace sluice::data
