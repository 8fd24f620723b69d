#pragma once
#include <chrono>
#include <string>
#include <vector>

#include "sluice/compiler/body.h"
#include "sluice/compiler/compile.h"

namespace sluice::compiler {

/// Runs the passes of the list by name: skips disabled ones, times each, prints on request.
class Pipeline {
 public:
  /// Error{kUsage} if `disable` or `print_after` names no pass, or a pass that may not be disabled.
  explicit Pipeline(const CompileOptions& options);

  bool enabled(const std::string& pass) const;
  /// Runs `pass(body)`, which returns how many changes it made.
  template <typename Pass>
  void run(const std::string& name, Body& body, Pass&& pass) {
    if (!enabled(name)) return;
    const auto begin = std::chrono::steady_clock::now();
    const int64_t changes = pass(body);
    record(name, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(),
           changes, body);
  }
  std::vector<PassRecord> records() const { return records_; }

 private:
  void record(const std::string& name, double seconds, int64_t changes, const Body& body);

  std::vector<std::string> disabled_;
  std::string print_after_;
  std::vector<PassRecord> records_;
};

}  // namespace sluice::compiler
