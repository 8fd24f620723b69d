#include "sluice/session/session.h"

#include <chrono>

#include "sluice/session/async_state.h"

namespace sluice {
namespace {

template <typename State>
State& held(const std::shared_ptr<State>& state) {
  require(state != nullptr, "AsyncRun: must hold a run, got one that was moved from");
  return *state;
}

}  // namespace

void AsyncRun::State::start(std::function<void()> run) {
  thread = std::thread([this, run = std::move(run)] {
    std::exception_ptr caught;
    try {
      run();
    } catch (...) {
      caught = std::current_exception();
    }
    const std::lock_guard hold(lock);
    error = caught;
    busy.reset();
    done = true;
    ended.notify_all();
  });
}

bool AsyncRun::State::is_done() const {
  const std::lock_guard hold(lock);
  return done;
}

// A stop has no effect before the run has begun, so repeat it. Hold the lock during stop():
// otherwise the run could end first, and the call could reach the next run or a destroyed session.
bool AsyncRun::State::stop_run() {
  for (;;) {
    {
      const std::lock_guard hold(lock);
      if (done) return false;
      if (stop()) return true;
    }
    std::this_thread::yield();
  }
}

void AsyncRun::State::join() {
  std::unique_lock hold(lock);
  ended.wait(hold, [&] { return done; });
  if (thread.joinable()) thread.join();
}

AsyncRun::AsyncRun(std::shared_ptr<State> state) : state_(std::move(state)) {}
AsyncRun::AsyncRun(AsyncRun&&) noexcept = default;

// The destructor of `taken` ends the run that this object held.
AsyncRun& AsyncRun::operator=(AsyncRun&& other) noexcept {
  AsyncRun taken(std::move(other));
  std::swap(state_, taken.state_);
  return *this;
}

AsyncRun::~AsyncRun() {
  if (state_ == nullptr) return;
  state_->stop_run();
  state_->join();
}

HostTensors AsyncRun::wait() {
  State& state = held(state_);
  state.join();
  if (state.error != nullptr) std::rethrow_exception(state.error);
  const std::lock_guard hold(state.lock);
  return std::exchange(state.results, {});
}

bool AsyncRun::wait_for(double seconds) {
  State& state = held(state_);
  std::unique_lock hold(state.lock);
  return state.ended.wait_for(hold, std::chrono::duration<double>(seconds),
                              [&] { return state.done; });
}

bool AsyncRun::done() const { return held(state_).is_done(); }
bool AsyncRun::stop() { return held(state_).stop_run(); }

std::vector<std::pair<std::string, int64_t>> AsyncRun::progress() const {
  const State& state = held(state_);
  const std::lock_guard hold(state.lock);
  if (!state.session_lives) return {};
  return state.progress();
}

}  // namespace sluice
