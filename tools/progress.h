#pragma once
#include <chrono>
#include <cstdint>
#include <string>

namespace sluice::tool {

/// Progress of a run on stderr: a bar that is redrawn at most ten times a second on a terminal, else a plain line every
/// ten seconds or twentieth of the work. Silent below log level "info".
class Progress {
 public:
  Progress(std::string title, int64_t steps, int64_t samples_per_step,
           const std::string& log_level);
  /// After step `done` (from 1); `loss` is the last one.
  void show(int64_t done, float loss);
  /// Clears the bar.
  void finish();
  double seconds() const;

 private:
  using Clock = std::chrono::steady_clock;
  std::string title_;
  int64_t steps_;
  int64_t samples_;
  bool quiet_;
  bool terminal_;
  Clock::time_point begin_ = Clock::now();
  Clock::time_point last_ = begin_;
  int64_t last_done_ = 0;
};

}  // namespace sluice::tool
