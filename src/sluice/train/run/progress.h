#pragma once
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace sluice::train {

/// Reports the progress of some calls on stderr: on a terminal, a bar that is redrawn at most ten
/// times a second; else a line every ten seconds and one at the end.
class ProgressBar {
 public:
  /// `total`: calls in all; 0 if it is not known. A bar that is not shown prints nothing.
  enum class Shown : uint8_t { kNo, kYes };
  ProgressBar(int64_t total, Shown shown);
  /// Ends the line of a bar that is not complete.
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  /// Whether show() would print. Otherwise the caller need not make the text.
  bool is_due(int64_t done);
  /// Ends an open line, so that others may print; the next show() begins a new one.
  void end_line();
  /// Reports that `done` calls are done: "Loss:0.1422: 100%|████| 15/15 [00:07<00:00, 2.01it/s]".
  void show(int64_t done, std::string_view text);

 private:
  using Clock = std::chrono::steady_clock;
  int64_t total_;
  Shown shown_;
  bool terminal_;
  bool open_ = false;  ///< The line of the bar has not ended.
  Clock::time_point begin_ = Clock::now();
  Clock::time_point last_ = begin_;
};

/// Formats seconds as "01:31", or "1:01:31" from an hour on.
std::string clock_text(double seconds);

}  // namespace sluice::train
