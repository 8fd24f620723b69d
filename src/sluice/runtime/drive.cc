#include <algorithm>
#include <chrono>
#include <thread>

#include "sluice/base/flush_to_zero.h"
#include "sluice/runtime/executor.h"

// How the threads of the pool advance the strands of a run. A thread that the system has taken off
// its core, because other processes use it, would hold up all workers at the next barrier. So any
// thread may continue with strands that nobody advances at the moment: a busy machine then has
// fewer workers. Strands are the same whatever thread advances them, and so are the bits.

namespace sluice::runtime {
namespace {

constexpr int kSpins = 4000;   // About 50 µs: longer than a barrier, shorter than waking a thread.
constexpr int kLook = 16;      // Spins before works that no thread has begun are adopted.
constexpr int kYields = 1000;  // About 1 ms without other threads. After that, a worker sleeps.
constexpr std::chrono::microseconds kSleep{50};
constexpr std::chrono::microseconds kParkPeriod{200};

}  // namespace

// Lets the threads advance the strands of a run that is prepared.
void Executor::open_works() {
  over_ = false;
  for (size_t w = 0; w < work_.size(); ++w) {
    Work& work = work_[w];
    const auto done = [](const Strand* s) { return s->finished(); };
    work.finished = std::all_of(work.strands.begin(), work.strands.end(), done);
    work.driver = w == 0 || !work.is_movable ? static_cast<int>(w) : kNobody;
    release(work);
  }
}

// Afterwards no other thread uses a strand.
void Executor::close_works() {
  over_ = true;
  for (Work& work : work_) {
    for (int spins = 0; !hold(work); ++spins) {
      if (may_spin() && spins < kSpins) {
        spin_pause();
      } else {
        std::this_thread::yield();
      }
    }
  }
}

bool Executor::all_finished() const {
  return std::all_of(work_.begin(), work_.end(), [](const Work& work) {
    return work.finished.load(std::memory_order_acquire);
  });
}

// Advances the strands of a work unless another thread does. Returns whether there was progress.
bool Executor::advance(Work& work) {
  if (work.finished.load(std::memory_order_relaxed) || !hold(work)) return false;
  bool progress = false;
  bool finished = true;
  for (Strand* s : work.strands) {
    // After a stop, a step that failed must not run again.
    if (s->finished() || stop_.load(std::memory_order_relaxed)) continue;
    progress = advance_or_fail(*s) || progress;
    finished = finished && s->finished();
  }
  if (finished && !stop_.load(std::memory_order_relaxed))
    work.finished.store(true, std::memory_order_release);
  release(work);
  return progress;
}

// Advances the works of other workers that this worker has adopted.
bool Executor::advance_moved(int worker) {
  bool progress = false;
  for (size_t w = 0; w < work_.size(); ++w) {
    const bool is_adopted = work_[w].driver.load(std::memory_order_relaxed) == worker;
    if (is_adopted && static_cast<int>(w) != worker) progress = advance(work_[w]) || progress;
  }
  return progress;
}

// Adopts works for a worker that has found nothing to do `idle` times: those that no thread has
// begun, and those whose driver has not made a pass since the middle of the spins.
void Executor::adopt(int worker, int idle, std::vector<uint32_t>& beats) {
  const int period = may_spin() ? kSpins : 4;
  const bool looks = idle % period == period / 2, compares = idle % period == 0;
  if (idle % kLook != 0 && !looks && !compares) return;
  for (size_t w = 0; w < work_.size(); ++w) {
    Work& work = work_[w];
    int driver = work.driver.load(std::memory_order_relaxed);
    if (driver == worker || !work.is_movable || work.finished.load(std::memory_order_relaxed))
      continue;
    if (driver != kNobody) {
      const uint32_t beat = at(work_, driver).beats.load(std::memory_order_relaxed);
      if (looks) beats[w] = beat;
      if (!compares || beats[w] != beat || work.is_held.load(std::memory_order_relaxed)) continue;
    }
    if (work.driver.compare_exchange_strong(driver, worker, std::memory_order_relaxed))
      moved_.fetch_add(1, std::memory_order_relaxed);
  }
}

// Worker 0 returns at the end of the run. The others leave then, or in a later run.
void Executor::drive(int worker) {
  Work& own = at(work_, worker);
  const FlushToZero flush;
  int idle = 0;
  for (uint32_t beat = own.beats; !over_.load(std::memory_order_acquire);) {
    own.beats.store(++beat, std::memory_order_relaxed);
    if (own.driver.load(std::memory_order_relaxed) != worker) own.driver = worker;
    const uint32_t feed_events = feeds_.events().count();
    bool progress = advance(own);
    progress = advance_moved(worker) || progress;
    if (worker == 0) {
      check_sinks_or_fail();
      progress = poll_or_fail() || progress;
      // Only this worker advances messages, also those of collectives that others still begin.
      const bool finished =
          all_finished() && (!communicator_->has_messages() || communicator_->is_over());
      if (finished || stop_.load(std::memory_order_relaxed)) break;
    }
    if (progress) {
      idle = 0;
      continue;
    }
    adopt(worker, ++idle, own.seen_beats);
    if (may_spin() && idle < kSpins) {
      spin_pause();
    } else {
      park(worker, idle, feed_events);
    }
  }
}

// Lets the thread rest until the transfer ends that a strand waits for, or for a short time. A feed
// may need another strand of this worker, so the worker looks at its strands again.
void Executor::park(int worker, int idle, uint32_t feed_events) {
  if (over_.load()) return;
  if (feeds_.waiting()) return feeds_.events().await(feed_events, kParkPeriod);
  for (Work& work : work_) {
    if (work.driver.load(std::memory_order_relaxed) == worker && park(work)) return;
  }
  if (idle < kSpins + kYields) {
    std::this_thread::yield();
  } else {
    std::this_thread::sleep_for(kSleep);
  }
}

// Parks in the first strand of a work that has not finished, if it waits for a transfer.
bool Executor::park(Work& work) {
  if (work.finished.load(std::memory_order_relaxed) || !hold(work)) return false;
  const auto waits = std::find_if(work.strands.begin(), work.strands.end(),
                                  [](const Strand* s) { return !s->finished(); });
  const bool parked = waits != work.strands.end() && (*waits)->park();
  release(work);
  return parked;
}

}  // namespace sluice::runtime
