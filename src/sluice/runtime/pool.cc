#include "sluice/runtime/pool.h"

#include "sluice/base/error.h"

namespace sluice::runtime {
namespace {

// About 100 µs: workers stay awake between the steps of a loop and sleep in an idle program.
constexpr int kIdleSpins = 10000;

}  // namespace

Pool::Pool(int workers, Idle idle) : idle_(idle) {
  require(workers >= 1 && workers <= kMaxWorkers, "threads: must be in [1, {}], got {}",
          kMaxWorkers, workers);
  for (int w = 1; w < workers; ++w) threads_.emplace_back([this, w] { serve(w); });
}

Pool::~Pool() {
  quit_ = true;
  generation_.fetch_add(1);
  generation_.notify_all();
  for (std::thread& t : threads_) t.join();
}

uint32_t Pool::wait_while(const std::atomic<uint32_t>& word, uint32_t old) const {
  for (int spins = idle_ == Idle::kSpin ? kIdleSpins : 0; spins > 0; --spins) {
    const uint32_t now = word.load(std::memory_order_acquire);
    if (now != old) return now;
    spin_pause();
  }
  word.wait(old, std::memory_order_acquire);
  return word.load(std::memory_order_acquire);
}

void Pool::serve(int worker) {
  uint32_t seen = 0;
  for (;;) {
    seen = wait_while(generation_, seen);
    if (quit_) return;
    job_(argument_, worker);
    finished_.fetch_add(1, std::memory_order_release);
    finished_.notify_one();
  }
}

void Pool::run(void (*job)(void*, int), void* argument) {
  if (threads_.empty()) {
    job(argument, 0);
    return;
  }
  job_ = job;
  argument_ = argument;
  finished_.store(0, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  job(argument, 0);
  for (uint32_t done = finished_.load(std::memory_order_acquire); done != threads_.size();)
    done = wait_while(finished_, done);
}

void Pool::lead(void (*job)(void*, int), void* argument) {
  if (job_ == nullptr) {
    job_ = job;
    argument_ = argument;
  }
  SLUICE_CHECK(job_ == job && argument_ == argument);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  job(argument, 0);
}

}  // namespace sluice::runtime
