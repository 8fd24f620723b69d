#pragma once
#include <array>
#include <memory>
#include <type_traits>
#include <utility>

#include "sluice/runtime/loaded_program.h"
#include "sluice/runtime/queue.h"

namespace sluice::runtime {

/// A queue whose commands know their steps. If a command fails, its step gets the blame, also if
/// the error shows at a later call.
class Commands {
 public:
  explicit Commands(std::unique_ptr<Queue> queue) : queue_(std::move(queue)) {}

  /// Enqueues a command of a step: f(queue) makes one copy.
  template <typename F>
  void add(const exe::Step* step, F&& f) {
    count(step);
    call(f);
  }
  /// Enqueues a launch, or adds it to the recording that is being made.
  void launch(const exe::Step* step, const Launch& launch) {
    if (!recording_) count(step);
    call([&](Queue& q) { q.launch(launch); });
  }
  /// Records what f() launches.
  template <typename F>
  std::unique_ptr<Recording> record(F&& f) {
    call([](Queue& q) { q.begin_recording(); });
    recording_ = true;
    f();
    recording_ = false;
    return call([](Queue& q) { return q.end_recording(); });
  }
  /// Enqueues the launches of a recording, which are those of `kernels`.
  void replay(const Recording& recording, std::span<const LoadedKernel* const> kernels) {
    for (const LoadedKernel* kernel : kernels) count(kernel->step);
    call([&](Queue& q) { q.replay(recording); });
  }
  /// Returns whether the queue has room for the commands of a step: see Queue::kMaxOutstanding.
  bool has_room() {
    if (count_ - batch_begin_ < kBatch) return true;
    if (batch_ != 0 && !passed(batch_)) return false;
    batch_ = mark();
    batch_begin_ = count_;
    return true;
  }
  int64_t mark() {
    return call([](Queue& q) { return q.mark(); });
  }
  bool passed(int64_t mark) {
    return call([&](Queue& q) { return q.passed(mark); });
  }
  void wait(Commands& other, int64_t mark) {
    call([&](Queue& q) { q.wait(*other.queue_, mark); });
  }
  void check() {
    call([](Queue& q) { q.check(); });
  }
  /// Returns whether all commands have ended. Does not wait. No command may follow before
  /// restart().
  bool drained() {
    if (last_ == 0) last_ = mark();
    return passed(last_);
  }
  /// Prepares a run: forgets the marks, and whom to blame. All commands must have ended.
  void restart() {
    call([](Queue& q) { q.drain(); });
    batch_ = last_ = 0;
    batch_begin_ = count_;
    blamed_ = nullptr;
  }
  /// Returns the step whose command failed; null without one.
  const exe::Step* blamed() const { return blamed_; }

 private:
  void count(const exe::Step* step) {
    ++count_;
    steps_[static_cast<size_t>(count_) % steps_.size()] = step;
  }
  /// Minimum number of launches and copies between two marks of has_room(). A step, with the
  /// kernels batched before it, may add the same number. So at most four times this number is
  /// outstanding.
  static constexpr int64_t kBatch = Queue::kMaxOutstanding / 4;

  template <typename F>
  std::invoke_result_t<F, Queue&> call(F&& f) {
    try {
      return f(*queue_);
    } catch (...) {
      const int64_t failed = queue_->begun();
      if (failed > 0 && count_ - failed < static_cast<int64_t>(steps_.size()))
        blamed_ = steps_[static_cast<size_t>(failed) % steps_.size()];
      throw;
    }
  }

  std::unique_ptr<Queue> queue_;
  int64_t count_ = 0;
  bool recording_ = false;
  int64_t batch_ = 0;        ///< Mark after the last batch of has_room(); 0: none.
  int64_t batch_begin_ = 0;  ///< Commands before that mark.
  int64_t last_ = 0;         ///< Mark of drained(); 0: none.
  std::array<const exe::Step*, 4096> steps_{};  ///< Indexed by command number modulo the size.
  const exe::Step* blamed_ = nullptr;
};

}  // namespace sluice::runtime
