#include "tools/progress.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "sluice/base/sys.h"

namespace sluice::tool {
namespace {

bool is_terminal() {
  const char* term = std::getenv("TERM");
  return isatty(STDERR_FILENO) == 1 && term != nullptr && std::string_view(term) != "dumb";
}

}  // namespace

Progress::Progress(Work work, Shown shown)
    : work_(std::move(work)), shown_(shown), terminal_(is_terminal()) {}

void Progress::show(int64_t done, std::optional<double> loss, std::optional<double> accuracy) {
  if (shown_ == Shown::kNo) return;
  // Reading the clock costs more than a small step's bookkeeping: read it every eighth step.
  if (done % 8 != 0 && done != work_.steps) return;
  const auto now = Clock::now();
  const double since = std::chrono::duration<double>(now - last_).count();
  const bool twentieth = (done - last_done_) * 20 >= work_.steps;
  if (terminal_ ? since < 0.1 && done != work_.steps
                : since < 10 && !(twentieth && since > 1) && done != work_.steps)
    return;
  last_ = now;
  last_done_ = done;
  const double elapsed = std::chrono::duration<double>(now - begin_).count();
  const double rate = static_cast<double>(done * work_.samples_of_step) / std::max(elapsed, 1e-9);
  const auto left = static_cast<int64_t>(elapsed / static_cast<double>(done) *
                                         static_cast<double>(work_.steps - done));
  int64_t steps = work_.steps;  // The length of the bar: one epoch if there are epochs.
  std::string name = work_.name;
  if (work_.steps_of_epoch > 0) {
    const int64_t epochs = (work_.steps + work_.steps_of_epoch - 1) / work_.steps_of_epoch;
    const int64_t epoch = (done - 1) / work_.steps_of_epoch;
    name = fmt::format("{} {}/{}", name, epoch + 1, epochs);
    steps = std::min(work_.steps_of_epoch, work_.steps - epoch * work_.steps_of_epoch);
    done -= epoch * work_.steps_of_epoch;
  }
  std::string figures = fmt::format("{}/{}", done, steps);
  if (loss) figures += fmt::format("  loss {:.4f}", *loss);
  if (accuracy) figures += fmt::format("  accuracy {:.2f} %", *accuracy);
  figures += fmt::format("  {:.1f}k samples/s  ETA {:02}:{:02}", rate / 1000, left / 60, left % 60);
  if (!terminal_) {
    sys::print_stderr("{}  {}\n", name, figures);
    return;
  }
  constexpr int kWidth = 24;
  const int filled = static_cast<int>(done * kWidth / steps);
  sys::print_stderr("\r{} [{}{}] {}\033[K", name, std::string(static_cast<size_t>(filled), '='),
                    std::string(static_cast<size_t>(kWidth - filled), ' '), figures);
}

Progress::~Progress() {
  if (shown_ == Shown::kYes && terminal_) sys::print_stderr("\r\033[K");
}

}  // namespace sluice::tool
