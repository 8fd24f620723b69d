#include "sluice/train/run/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include <unistd.h>

#include "sluice/base/sys.h"

namespace sluice::train {
namespace {

constexpr int64_t kWidth = 20;  // Characters of a bar.

bool is_terminal() {
  const char* term = std::getenv("TERM");
  return isatty(STDERR_FILENO) == 1 && term != nullptr && std::string_view(term) != "dumb";
}

}  // namespace

std::string clock_text(double seconds) {
  const auto all = static_cast<int64_t>(std::max(0.0, seconds));
  if (all < 3600) return fmt::format("{:02}:{:02}", all / 60, all % 60);
  return fmt::format("{}:{:02}:{:02}", all / 3600, all / 60 % 60, all % 60);
}

ProgressBar::ProgressBar(int64_t total, Shown shown)
    : total_(total), shown_(shown), terminal_(is_terminal()) {}

ProgressBar::~ProgressBar() { end_line(); }

void ProgressBar::end_line() {
  if (open_) sys::print_stderr("\n");
  open_ = false;
}

bool ProgressBar::is_due(int64_t done) {
  if (shown_ == Shown::kNo) return false;
  if (done == total_) return true;
  return std::chrono::duration<double>(Clock::now() - last_).count() >= (terminal_ ? 0.1 : 10);
}

void ProgressBar::show(int64_t done, std::string_view text) {
  if (!is_due(done)) return;
  last_ = Clock::now();
  const double elapsed = std::chrono::duration<double>(last_ - begin_).count();
  const double rate = static_cast<double>(done) / std::max(elapsed, 1e-9);
  std::string line(text);
  if (!line.empty()) line += ": ";
  if (total_ > 0) {
    std::string bar;
    for (int64_t i = 0; i < kWidth; ++i) bar += i < done * kWidth / total_ ? "█" : " ";
    const double left = static_cast<double>(total_ - done) / rate;
    line += fmt::format("{:3}%|{}| {}/{} [{}<{}, {:.2f}it/s]", 100 * done / total_, bar, done,
                        total_, clock_text(elapsed), clock_text(left), rate);
  } else {
    line += fmt::format("{} [{}, {:.2f}it/s]", done, clock_text(elapsed), rate);
  }
  const bool ends = done == total_ || !terminal_;
  sys::print_stderr("{}{}{}{}", terminal_ ? "\r" : "", line, terminal_ ? "\033[K" : "",
                    ends ? "\n" : "");
  open_ = !ends;
}

}  // namespace sluice::train
