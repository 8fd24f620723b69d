#pragma once
#include <cstdint>

namespace sluice::test {

/// While an object exists, threads that this process starts begin with a random sleep.
class DelayedThreadStarts {
 public:
  /// `max` is the longest sleep in microseconds. `seed` selects the sleeps.
  DelayedThreadStarts(int64_t max, uint64_t seed);
  ~DelayedThreadStarts();
  DelayedThreadStarts(const DelayedThreadStarts&) = delete;
  DelayedThreadStarts& operator=(const DelayedThreadStarts&) = delete;

  /// Returns the number of delayed threads.
  static int64_t count();
};

}  // namespace sluice::test
