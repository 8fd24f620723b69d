#pragma once
#include <cstdint>

namespace sluice::test {

/// Threads that this process starts while one exists begin with a random sleep.
class DelayedThreadStarts {
 public:
  /// `most`: the longest sleep, in microseconds. `seed` chooses the sleeps.
  DelayedThreadStarts(int64_t most, uint64_t seed);
  ~DelayedThreadStarts();
  DelayedThreadStarts(const DelayedThreadStarts&) = delete;
  DelayedThreadStarts& operator=(const DelayedThreadStarts&) = delete;

  /// Threads that have been delayed.
  static int64_t count();
};

}  // namespace sluice::test
