#pragma once
#include <array>
#include <memory>
#include <type_traits>
#include <utility>

#include "sluice/runtime/queue.h"

namespace sluice::runtime {

/// A queue whose commands know their steps. If a command fails, its step gets the blame, also if
/// the error shows at a later call.
class Commands {
 public:
  explicit Commands(std::unique_ptr<Queue> queue) : queue_(std::move(queue)) {}

  /// Enqueues a command of a step: f(queue) makes one launch or copy.
  template <typename F>
  void add(const exe::Step* step, F&& f) {
    ++count_;
    steps_[static_cast<size_t>(count_) % steps_.size()] = step;
    call(f);
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
  /// Waits for the commands of a run that was stopped, and forgets whom to blame.
  void restart() {
    call([](Queue& q) { q.drain(); });
    blamed_ = nullptr;
  }
  /// Returns the step whose command failed; null without one.
  const exe::Step* blamed() const { return blamed_; }

 private:
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
  std::array<const exe::Step*, 4096> steps_{};  ///< By number of the command, modulo the size.
  const exe::Step* blamed_ = nullptr;
};

}  // namespace sluice::runtime
