#include "sluice/runtime/pool.h"

#include "sluice/base/error.h"

namespace sluice::runtime {

Pool::Pool(int workers) {
  require(workers >= 1 && workers <= kMaxWorkers, "threads: {} is outside [1, {}]", workers,
          kMaxWorkers);
  for (int w = 1; w < workers; ++w) threads_.emplace_back([this, w] { serve(w); });
}

Pool::~Pool() {
  quit_ = true;
  generation_.fetch_add(1);
  generation_.notify_all();
  for (std::thread& t : threads_) t.join();
}

void Pool::serve(int worker) {
  uint32_t seen = 0;
  for (;;) {
    generation_.wait(seen, std::memory_order_acquire);
    seen = generation_.load(std::memory_order_acquire);
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
  for (uint32_t done = finished_.load(std::memory_order_acquire); done != threads_.size();
       done = finished_.load(std::memory_order_acquire)) {
    finished_.wait(done, std::memory_order_acquire);
  }
}

}  // namespace sluice::runtime
