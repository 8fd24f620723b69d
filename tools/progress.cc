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

Progress::Progress(std::string title, int64_t steps, int64_t samples_per_step,
                   const std::string& log_level)
    : title_(std::move(title)),
      steps_(steps),
      samples_(samples_per_step),
      quiet_(log_level == "error"),
      terminal_(is_terminal()) {}

double Progress::seconds() const {
  return std::chrono::duration<double>(Clock::now() - begin_).count();
}

void Progress::show(int64_t done, float loss) {
  if (quiet_) return;
  // Looking at the clock costs more than a small step's bookkeeping: look at every eighth step.
  if (done % 8 != 0 && done != steps_) return;
  const auto now = Clock::now();
  const double since = std::chrono::duration<double>(now - last_).count();
  const bool twentieth = (done - last_done_) * 20 >= steps_;
  if (terminal_ ? since < 0.1 && done != steps_
                : since < 10 && !(twentieth && since > 1) && done != steps_)
    return;
  last_ = now;
  last_done_ = done;
  const double elapsed = seconds();
  const double rate = static_cast<double>(done * samples_) / std::max(elapsed, 1e-9);
  const auto left = static_cast<int64_t>(elapsed / static_cast<double>(done) *
                                         static_cast<double>(steps_ - done));
  const std::string text =
      fmt::format("{} {}/{}  loss {:.4f}  {:.1f}k samples/s  ETA {:02}:{:02}", title_, done, steps_,
                  loss, rate / 1000, left / 60, left % 60);
  if (!terminal_) {
    sys::print_stderr("{}\n", text);
    return;
  }
  constexpr int kWidth = 24;
  const int filled = static_cast<int>(done * kWidth / steps_);
  sys::print_stderr("\r[{}{}] {}\033[K", std::string(static_cast<size_t>(filled), '='),
                    std::string(static_cast<size_t>(kWidth - filled), ' '), text);
}

void Progress::finish() {
  if (!quiet_ && terminal_) sys::print_stderr("\r\033[K");
}

}  // namespace sluice::tool
