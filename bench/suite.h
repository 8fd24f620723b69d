#pragma once
#include <string>
#include <vector>

namespace sluice::bench {

struct SuiteOptions {
  std::string only;  ///< Cases whose title has this text; empty: all.
  int rounds = 5;    ///< The figures are medians over so many.
  int threads = 0;   ///< Leaves out cases of more threads; 0: of more than there are usable cores.
  std::vector<std::string>
      pythons;  ///< PyTorch to compare with: the first one is the goals', others are reported.
  bool json = false;
};

/// Measures the machine's limits and the engine's figures against them and against PyTorch, and
/// prints them on stdout: a row as soon as it is there, or one JSON object at the end. In a round
/// every side of a case is measured once, so that ratios are of the same moments. Error{kUsage} if
/// no case has the text.
void run_suite(const SuiteOptions& options);

}  // namespace sluice::bench
