#include "family.h"

#include <algorithm>

#include "commands.h"

namespace sluice::opaque {
namespace {

thread_local bool inside_command = false;

}  // namespace

InsideCommand::InsideCommand() { inside_command = true; }
InsideCommand::~InsideCommand() { inside_command = false; }

Family::Family(Options of)
    : options(std::move(of)), races(options.checks_races()), random_(options.seed) {
  require(options.events > 0 && options.ring > 0,
          "opaque: events and ring must be positive, got {} and {}", options.events, options.ring);
}

std::unique_lock<std::mutex> Family::enter() {
  if (inside_command)
    fail(ErrorKind::kInternal, "opaque: a command of a queue must not call the device");
  std::unique_lock lock(mutex_, std::defer_lock);
  if (options.mode == Mode::kLazy) lock.lock();
  return lock;
}

int Family::add(CommandList& commands) {
  const std::lock_guard lock(lists_mutex_);
  lists_.push_back(&commands);
  return added_++;
}

void Family::remove(CommandList& commands) {
  const std::lock_guard lock(lists_mutex_);
  std::erase(lists_, &commands);
}

bool Family::run_one() {
  std::vector<CommandList*> able;
  for (CommandList* commands : lists_) {
    if (commands->can_run()) able.push_back(commands);
  }
  if (able.empty()) return false;
  able[random_() % able.size()]->run_next();
  return true;
}

void Family::run_some() {
  for (auto n = random_() % (static_cast<uint64_t>(options.eagerness) + 1); n > 0; --n) {
    if (!run_one()) return;
  }
}

void Family::run_until(const std::function<bool()>& done) {
  // A wait is for commands that were there before it, so some command can always begin, now or when
  // the options allow it.
  while (!done()) {
    if (!run_one()) SLUICE_CHECK(options.may_begin);
  }
}

DeviceState::~DeviceState() {
  for (const Range& range : memory.ranges()) family->races.forget(range);
}

void DeviceState::fail(const Error& error) {
  const std::lock_guard lock(mutex_);
  if (error_ != nullptr) return;
  error_ = std::make_unique<Error>(error);
  failed_.store(true, std::memory_order_relaxed);
  for (CommandList* commands : lists_) commands->fail();
}

void DeviceState::rethrow() const {
  const std::lock_guard lock(mutex_);
  throw Error(*error_);
}

void DeviceState::count_call() {
  if (!family->count_call()) return;
  fail(Error(ErrorKind::kPeerLost, "opaque: the device is lost at this call, as fail_at requires"));
  rethrow();
}

void DeviceState::add(CommandList& commands) {
  const std::lock_guard lock(mutex_);
  lists_.push_back(&commands);
}

void DeviceState::remove(CommandList& commands) {
  const std::lock_guard lock(mutex_);
  std::erase(lists_, &commands);
}

}  // namespace sluice::opaque
