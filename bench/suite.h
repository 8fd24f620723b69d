#pragma once
#include <string>
#include <vector>

namespace sluice::bench {

struct SuiteOptions {
  std::string only;  ///< Run only cases whose title contains this text; empty for all.
  int rounds = 5;    ///< Number of rounds; figures are their medians.
  int threads = 0;   ///< Maximum threads of a case; 0 for the number of usable cores.
  std::vector<std::string> pythons;  ///< Pythons with PyTorch. Goals compare with the first one.
  bool json = false;
};

/// Measures the machine's limits, and compares the engine with them and with PyTorch. Prints a row
/// on stdout as soon as it is measured, or one JSON object at the end. A round measures every side
/// of a case once, so that ratios compare equal conditions. Error{kUsage} if no case matches the
/// options.
void run_suite(const SuiteOptions& options);

}  // namespace sluice::bench
