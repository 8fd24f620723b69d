#pragma once
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace sluice::tool {

/// A piece of work whose progress is reported.
struct Work {
  std::string name;            ///< "Epoch" of a training, else the work's own: "Evaluation".
  int64_t steps = 0;           ///< In all.
  int64_t steps_of_epoch = 0;  ///< 0: the work has no epochs.
  int64_t samples_of_step = 0;
};

/// Reports progress on stderr: a bar that is redrawn at most ten times a second on a terminal, else
/// a plain line every ten seconds or twentieth of the work. The destructor clears the bar.
class Progress {
 public:
  enum class Shown { kNo, kYes };

  Progress(Work work, Shown shown);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  /// Reports that `done` steps are done, and the mean loss and the accuracy of the last one if it
  /// has them.
  void show(int64_t done, std::optional<double> loss = std::nullopt,
            std::optional<double> accuracy = std::nullopt);

 private:
  using Clock = std::chrono::steady_clock;
  Work work_;
  Shown shown_;
  bool terminal_;
  Clock::time_point begin_ = Clock::now();
  Clock::time_point last_ = begin_;
  int64_t last_done_ = 0;
};

}  // namespace sluice::tool
