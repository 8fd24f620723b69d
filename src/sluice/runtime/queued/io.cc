#include "sluice/runtime/queued/io.h"

#include "sluice/runtime/walk.h"

namespace sluice::runtime {
namespace {

constexpr size_t kMaxTransfers = 256;

}  // namespace

QueuedIo::QueuedIo(RunState& run, Commands& compute, std::unique_ptr<Queue> queue,
                   std::span<std::byte> staging)
    : run_(run),
      compute_(compute),
      commands_(std::move(queue)),
      staging_(run, commands_, staging),
      ring_(kMaxTransfers),
      thread_([this] { serve(); }) {}

QueuedIo::~QueuedIo() {
  quits_ = true;
  signal_.fetch_add(1);
  signal_.notify_all();
  thread_.join();
}

void QueuedIo::start() {
  commands_.restart();
  staging_.restart();
  issued_ = 0;
  ended_ = 0;
  loaded_ = 0;
  follows_ = false;
  failed_ = false;
  error_ = nullptr;
  blamed_ = nullptr;
  stops_ = false;
}

int64_t QueuedIo::issue(const QueuedTransfer& transfer, int64_t mark) {
  const int64_t number = issued_.load();
  if (number - ended_.load() >= ring_.size()) return kNotYet;
  job(number) = {transfer, mark};
  issued_.store(number + 1);
  if (run_.has_io_threads) {
    signal_.fetch_add(1);
    signal_.notify_all();
  }
  return number;
}

bool QueuedIo::await(int64_t number) {
  if (!run_.has_io_threads) advance_or_fail();
  if (failed_.load()) std::rethrow_exception(error_);
  if (ended_.load() <= number) return false;
  // The last load may be a later one, which is enqueued already.
  if (const int64_t mark = loaded_.load(); mark > 0) compute_.wait(commands_, mark);
  return true;
}

void QueuedIo::stop() {
  stops_ = true;
  while (busy_.load()) std::this_thread::yield();
}

bool QueuedIo::advance() {
  bool progress = false;
  for (int64_t number = ended_.load(); number < issued_.load() && !stops_; ++number) {
    Job& current = job(number);
    if (!follows_) {
      commands_.wait(compute_, current.after);
      follows_ = true;
    }
    if (!staging_.advance(current.transfer)) return progress;
    if (current.transfer.is_load()) loaded_.store(commands_.mark());
    follows_ = false;
    ended_.store(number + 1);
    progress = true;
  }
  return progress;
}

bool QueuedIo::advance_or_fail() {
  if (failed_.load()) return false;
  try {
    return advance();
  } catch (...) {
    error_ = std::current_exception();
    blamed_ = commands_.blamed() != nullptr ? commands_.blamed() : job(ended_.load()).transfer.step;
    failed_ = true;
  }
  return false;
}

void QueuedIo::serve() {
  for (;;) {
    const uint32_t seen = signal_.load();
    if (quits_) return;
    busy_ = true;
    // Read stops_ first. The thread may wake after stop(), when the next run is being prepared: the
    // rest is then written by another thread.
    while (!stops_ && !quits_ && pending() && run_.has_io_threads && !failed_) {
      if (!advance_or_fail()) std::this_thread::yield();
    }
    busy_ = false;
    signal_.wait(seen);
  }
}

}  // namespace sluice::runtime
