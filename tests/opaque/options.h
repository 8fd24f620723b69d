#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <string_view>

namespace sluice::opaque {

/// The way in which commands run.
enum class Mode : uint8_t {
  kThreads,  ///< Each queue has a thread.
  /// No threads. Each call of the interface runs some commands of all queues of the family, chosen
  /// by the seed, on its own thread. With one host thread, the order is the same in each run.
  kLazy
};

#if defined(__SANITIZE_THREAD__)
inline constexpr bool kThreadsAreWatched = true;
#else
inline constexpr bool kThreadsAreWatched = false;
#endif

/// Behaviour of a device. Whatever is random here depends on `seed`.
struct Options {
  Mode mode = Mode::kLazy;
  uint64_t seed = 1;
  /// Events of a queue. Mark m uses event m mod `events`.
  int events = 4;
  /// Commands, marks and waits that a queue holds. A call that would add another one waits.
  int ring = 16;
  /// Maximum number of calls of a queue that still return after a command has failed.
  int error_lag = 4;
  /// Threads: longest sleep before a command. Three of four commands have none.
  std::chrono::microseconds delay{50};
  /// Lazy: maximum number of commands that a call runs if nothing forces it to run more.
  int eagerness = 3;
  /// Whether two commands without order that touch the same bytes are an error. Off if the thread
  /// sanitizer watches the threads: it sees these bytes itself, and the check's lock would hide
  /// races of the host from it.
  bool check_races = true;
  /// Number of the call of the interface that fails, from 1; 0: none. All queues and open devices
  /// of a family count together. Open(), queue(), allocate() and pin() fail with kDoesNotFit.
  /// Another call loses its device: Error{kPeerLost}, now and from then on.
  int64_t fail_at = 0;
  /// Bytes that an open device reports as available_memory(); -1: not known.
  int64_t memory = -1;
  /// Runs on the device before each launch and copy. The arguments are the queue's index in its
  /// family, the command's number as in Queue::begun(), and its name ("launch opaque.gemm"). An
  /// Error that it throws is the error of the command; kPeerLost means that the device is lost.
  std::function<void(int queue, int64_t command, std::string_view name)> hook;

  /// Whether a launch or copy may begin now, with the arguments of `hook`; null: always. A queue
  /// asks again until the answer is true. Thus a command can take long without a thread that waits.
  std::function<bool(int queue, int64_t command, std::string_view name)> may_begin;

  bool checks_races() const {
    return check_races && !(mode == Mode::kThreads && kThreadsAreWatched);
  }
};

}  // namespace sluice::opaque
