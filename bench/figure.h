#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/machine.h"

namespace sluice::bench {

/// How an amount is shown. Rates are a case's work over its seconds.
enum class Unit { kGigaflops, kGigabytes, kNanoseconds, kMicroseconds, kMilliseconds, kBytes };
std::string_view to_string(Unit unit);

/// What a figure must reach: a part of its limit, a multiple of PyTorch's speed or of that of one
/// thread; or the shown amount that it must not exceed.
struct Goal {
  enum class Of { kPart, kPyTorch, kOneThread, kAtMost };
  Of of = Of::kPart;
  double bound = 0;
};

/// What one round of a case found. Amounts are seconds a call, or bytes; the less the better.
struct Round {
  double amount = 0;
  std::optional<double>
      limit;  ///< What the machine would take at best, measured in the same moments.
};

/// One figure of the suite.
struct Case {
  std::string group;  ///< limit, gemm, memory, step, phases, collective, compile.
  std::string name;
  int threads = 1;
  Unit unit = Unit::kMicroseconds;
  double work = 0;  ///< Flops or bytes of a call, where the unit is a rate.
  std::vector<Goal> goals = {};
  std::string pytorch = {};  ///< What to ask of pytorch_child.py; empty: nothing.
  /// Makes ready and returns what measures one round.
  std::function<std::function<Round()>()> start = {};

  std::string title() const { return group + " " + name; }
  /// An amount in the unit.
  double shown(double amount) const;
};

/// The parts of the suite. `machine` outlives the cases.
std::vector<Case> limit_cases(Machine& machine);
std::vector<Case> gemm_cases(Machine& machine);
std::vector<Case> memory_cases(Machine& machine);
std::vector<Case> step_cases(Machine& machine);
std::vector<Case> phase_cases();
std::vector<Case> collective_cases(Machine& machine);
std::vector<Case> compile_cases();

/// The middle one of some values.
double median(std::vector<double> values);

}  // namespace sluice::bench
