#include "sluice/runtime/io_queue.h"

#include <algorithm>

namespace sluice::runtime {

void Transfer::run() const {
  if (remote == nullptr) {
    std::copy_n(in ? other : memory, bytes, in ? memory : other);
  } else if (in) {
    remote->load(buffer, entry, 0, {memory, memory + bytes});
  } else {
    remote->store(buffer, entry, 0, {memory, memory + bytes});
  }
}

int64_t IoQueue::issue(const Transfer& transfer) {
  const int64_t number = issued_.load(std::memory_order_relaxed);
  if (number - ended_.load(std::memory_order_acquire) >= ring_.size()) return -1;
  ring_[number] = transfer;
  issued_.store(number + 1, std::memory_order_release);
  return number;
}

bool IoQueue::advance(int64_t last) {
  if (advancing_.exchange(true, std::memory_order_acquire)) return false;
  struct Done {
    std::atomic<bool>& flag;
    ~Done() { flag.store(false, std::memory_order_release); }
  } const done{advancing_};
  int64_t next = ended_.load(std::memory_order_relaxed);
  const int64_t end = std::min(issued_.load(std::memory_order_acquire) - 1, last) + 1;
  if (next >= end) return false;
  do {
    const Transfer& transfer = ring_[next];
    if (events_ != nullptr) events_->resume();
    transfer.run();
    if (events_ != nullptr) events_->end(transfer.step);
    ended_.store(++next, std::memory_order_release);
    rouse();
  } while (next < end && !stop_.load(std::memory_order_relaxed));
  return true;
}

void IoQueue::rouse() {
  signal_.fetch_add(1);
  signal_.notify_all();
}

void IoQueue::await(int64_t number) const {
  for (;;) {
    const uint32_t seen = signal_.load();
    if (done(number) || stop_.load()) return;
    signal_.wait(seen);
  }
}

const exe::Step* IoQueue::current() const { return ring_[ended_.load()].step; }

void IoQueue::reset() {
  issued_ = 0;
  ended_ = 0;
}

}  // namespace sluice::runtime
