#pragma once
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "sluice/session/session.h"

namespace sluice {

/// State that an AsyncRun and its session share.
struct AsyncRun::State {
  /// Starts the thread, which calls `run`. The member `stop` ends the run, or returns false if the
  /// run has not begun.
  void start(std::function<void()> run);
  /// Stops the run. Returns false if it has ended already.
  bool stop_run();
  /// Waits for the end of the run and of its thread.
  void join();
  bool is_done() const;

  Binding binding;
  HostTensors results;
  /// Marks the session as running. Released under the lock when `done` is set: while `done` is
  /// false, any run in progress is this one.
  std::shared_ptr<void> busy;
  std::function<bool()> stop;
  std::function<std::vector<std::pair<std::string, int64_t>>()> progress;

  mutable std::mutex lock;  ///< Guards `done`, `error`, `session_lives` and the joining.
  mutable std::condition_variable ended;
  bool done = false;
  bool session_lives = true;
  std::exception_ptr error;
  std::thread thread;
};

}  // namespace sluice
