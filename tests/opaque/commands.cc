#include "commands.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <bit>
#include <climits>
#include <thread>

#include "sluice/base/flush_to_zero.h"

namespace sluice::opaque {
namespace {

// std::atomic's own wait() and notify_all() would order the two threads: they share counters of
// waiters. These functions order nothing.
const uint32_t* low_half(const std::atomic<int64_t>& value) {
  return reinterpret_cast<const uint32_t*>(&value) + (std::endian::native == std::endian::big);
}

// Sleeps until a wake(), unless the value is no longer `seen`.
void sleep_while(const std::atomic<int64_t>& value, int64_t seen) {
  syscall(SYS_futex, low_half(value), FUTEX_WAIT_PRIVATE, static_cast<uint32_t>(seen), nullptr);
}

void wake(const std::atomic<int64_t>& value) {
  syscall(SYS_futex, low_half(value), FUTEX_WAKE_PRIVATE, INT_MAX);
}

}  // namespace

CommandList::CommandList(std::shared_ptr<DeviceState> device)
    : device_(std::move(device)),
      queue_(device_->family->add(*this)),
      random_(device_->family->options.seed + static_cast<uint64_t>(queue_)),
      last_(new Node),
      front_(last_) {
  device_->add(*this);
}

CommandList::~CommandList() { delete front_; }

void CommandList::close() {
  device_->remove(*this);
  device_->family->remove(*this);
  while (Node* const next = front_->next.load(std::memory_order_acquire)) {
    delete front_;
    front_ = next;
  }
  front_->command = {};
}

void CommandList::push(Command command) {
  Node* const node = new Node{std::move(command)};
  last_->next.store(node, std::memory_order_release);
  last_ = node;
  pushed_.fetch_add(1, std::memory_order_release);
  wake(pushed_);
}

bool CommandList::leaves_room(int64_t progress) const {
  return progress == kFailed || pushed() - progress < device_->family->options.ring;
}

void CommandList::wait_for_room() const {
  for (bool blocks = false;; blocks = true) {
    const int64_t progress = progress_.load(std::memory_order_relaxed);
    if (leaves_room(progress)) return;
    if (!blocks) device_->family->blocked.fetch_add(1, std::memory_order_relaxed);
    sleep_while(progress_, progress);
  }
}

bool CommandList::wait_for_all() const {
  for (;;) {
    const int64_t progress = progress_.load(std::memory_order_acquire);
    if (progress == kFailed || progress == pushed()) return progress != kFailed;
    sleep_while(progress_, progress);
  }
}

void CommandList::fail() {
  progress_.store(kFailed, std::memory_order_release);
  wake(progress_);
}

const Command& CommandList::front() const {
  return front_->next.load(std::memory_order_acquire)->command;
}

// Waits for the position that a command waits for. Returns false if it will never pass.
bool CommandList::wait_for(const Command& command) const {
  const std::atomic<int64_t>& other = command.awaited->progress_;
  for (;;) {
    const int64_t progress = other.load(std::memory_order_acquire);
    if (progress == kFailed || progress >= command.position) return progress != kFailed;
    sleep_while(other, progress);
  }
}

bool CommandList::may_begin(const Command& command) const {
  const auto& asks = device_->family->options.may_begin;
  return command.kind != Command::Action::kWork || !asks ||
         asks(queue_, command.number, command.name);
}

bool CommandList::can_run() const {
  const int64_t progress = progress_.load(std::memory_order_relaxed);
  if (progress == kFailed || progress == pushed()) return false;
  const Command& next = front();
  if (next.kind != Command::Action::kWait) return may_begin(next);
  const int64_t there = next.awaited->progress_.load(std::memory_order_acquire);
  return there == kFailed || there >= next.position;
}

void CommandList::perform(const Command& command) {
  if (command.kind == Command::Action::kWait && !wait_for(command))
    sluice::fail(ErrorKind::kPeerLost,
                 "opaque: a queue waits for a mark of a device that has failed");
  if (command.kind != Command::Action::kWork) return;
  begun_.store(command.number, std::memory_order_relaxed);
  const InsideCommand inside;
  const FlushToZero flush;
  const auto& hook = device_->family->options.hook;
  if (hook) hook(queue_, command.number, command.name);
  command.run();
}

void CommandList::run_next() {
  int64_t progress = progress_.load(std::memory_order_relaxed);
  if (progress == kFailed) return;
  try {
    perform(front());
  } catch (const Error& error) {
    return device_->fail(error);
  } catch (const std::exception& error) {
    return device_->fail(Error(ErrorKind::kInternal, error.what()));
  }
  Node* const done = front_;
  front_ = done->next.load(std::memory_order_relaxed);
  front_->command = {};
  delete done;
  // Another queue of the device may have failed meanwhile.
  progress_.compare_exchange_strong(progress, progress + 1, std::memory_order_acq_rel,
                                    std::memory_order_relaxed);
  wake(progress_);
}

void CommandList::serve() {
  const auto longest = static_cast<uint64_t>(device_->family->options.delay.count());
  for (int64_t done = 0;; ++done) {
    while (pushed_.load(std::memory_order_acquire) == done) sleep_while(pushed_, done);
    if (front().kind == Command::Action::kStop) return;
    while (!may_begin(front()) && progress_.load(std::memory_order_relaxed) != kFailed)
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    if (progress_.load(std::memory_order_relaxed) == kFailed) return;
    if (longest > 0 && random_() % 4 == 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(random_() % (longest + 1)));
      device_->family->delayed.fetch_add(1, std::memory_order_relaxed);
    }
    run_next();
  }
}

}  // namespace sluice::opaque
