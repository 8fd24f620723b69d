#include "sluice/session/session.h"

#include <chrono>

#include "sluice/session/async_state.h"

namespace sluice {

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
    done = true;
    ended.notify_all();
  });
}

bool AsyncRun::State::is_done() const {
  const std::lock_guard hold(lock);
  return done;
}

// The run may not have begun, so that a first stop has no effect.
bool AsyncRun::State::stop_run() {
  while (!is_done()) {
    if (stop()) return true;
    std::this_thread::yield();
  }
  return false;
}

void AsyncRun::State::join() {
  std::unique_lock hold(lock);
  ended.wait(hold, [&] { return done; });
  if (thread.joinable()) thread.join();
}

AsyncRun::AsyncRun(std::shared_ptr<State> state) : state_(std::move(state)) {}
AsyncRun::AsyncRun(AsyncRun&&) noexcept = default;

AsyncRun& AsyncRun::operator=(AsyncRun&& other) noexcept {
  std::swap(state_, other.state_);
  return *this;
}

AsyncRun::~AsyncRun() {
  if (state_ == nullptr) return;
  state_->stop_run();
  state_->join();
}

HostTensors AsyncRun::wait() {
  state_->join();
  if (state_->error != nullptr) std::rethrow_exception(state_->error);
  return std::move(state_->results);
}

bool AsyncRun::wait_for(double seconds) {
  std::unique_lock hold(state_->lock);
  return state_->ended.wait_for(hold, std::chrono::duration<double>(seconds),
                                [&] { return state_->done; });
}

bool AsyncRun::done() const { return state_->is_done(); }
bool AsyncRun::stop() { return state_->stop_run(); }

std::vector<std::pair<std::string, int64_t>> AsyncRun::progress() const {
  const std::lock_guard hold(state_->lock);
  if (!state_->session_lives) return {};
  return state_->progress();
}

}  // namespace sluice
