#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sluice/session/bindings.h"

namespace sluice {

/// A run on a thread of its own; Session::run_async makes it. Several threads may use one object,
/// except that wait() takes the outputs.
class AsyncRun {
 public:
  AsyncRun(AsyncRun&&) noexcept;
  AsyncRun& operator=(AsyncRun&&) noexcept;
  /// Stops the run, waits for its end, and discards its error. Call wait() to let it finish.
  ~AsyncRun();

  /// Waits for the end of the run. Returns its output arrays; without any, for a bound program and
  /// at a second call. Rethrows the error of the run.
  HostTensors wait();
  /// Waits for the end of the run, at most for `seconds`. Returns whether it has ended.
  bool wait_for(double seconds);
  /// Whether the run has ended.
  bool done() const;
  /// Ends the run as Session::stop does. Returns false if it has ended already.
  bool stop();
  /// Returns for each feed, by name, the elements of each replica that runs have read or stored
  /// since the feed was bound. Empty after the end of the session.
  std::vector<std::pair<std::string, int64_t>> progress() const;

 private:
  friend class Session;
  struct State;
  explicit AsyncRun(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

}  // namespace sluice
