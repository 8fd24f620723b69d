#pragma once
#include <fmt/core.h>

#include <iterator>
#include <vector>

#include "sluice/check/checker.h"

namespace sluice::check {

/// Collects the first `max` violations and discards later ones.
class Findings {
 public:
  explicit Findings(int32_t max) : max_(max) {}

  template <typename... Args>
  void add(const char* rule, fmt::format_string<Args...> format, Args&&... args) {
    if (!full()) all_.push_back({rule, fmt::format(format, std::forward<Args>(args)...)});
  }
  bool full() const { return std::ssize(all_) >= max_; }
  bool empty() const { return all_.empty(); }
  std::vector<Violation> take() { return std::move(all_); }

 private:
  int64_t max_;
  std::vector<Violation> all_;
};

}  // namespace sluice::check
