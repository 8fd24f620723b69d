#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/machine.h"

namespace sluice::bench {

/// Unit in which an amount is printed. A rate is the work of a case divided by its seconds.
enum class Unit { kGigaflops, kGigabytes, kNanoseconds, kMicroseconds, kMilliseconds, kBytes };
std::string_view to_string(Unit unit);

/// Goal of a figure. kPart: at least a part of the limit's speed. kPyTorch, kOneThread: at least a
/// multiple of the speed of PyTorch or of one thread. kAtMost: the printed amount must not exceed
/// the bound.
struct Goal {
  enum class Of { kPart, kPyTorch, kOneThread, kAtMost };
  Of of = Of::kPart;
  double bound = 0;
};

/// Result of one round of a case. Amounts are seconds of a call, or bytes; less is better.
struct Round {
  double amount = 0;
  /// Best possible amount on this machine, measured in the same round.
  std::optional<double> limit;
};

/// One figure of the suite.
struct Case {
  std::string group;  ///< The first word of a title, e.g. gemm.
  std::string name;
  int threads = 1;
  Unit unit = Unit::kMicroseconds;
  double work = 0;  ///< Flops or bytes of a call, if the unit is a rate.
  std::vector<Goal> goals = {};
  std::string pytorch = {};  ///< Request to pytorch_child.py; empty for none.
  /// Prepares the case and returns a function that measures one round.
  std::function<std::function<Round()>()> start = {};

  std::string title() const { return group + " " + name; }
  /// Converts an amount to the unit.
  double shown(double amount) const;
};

/// The groups of the suite's cases. `machine` must outlive them.
std::vector<Case> limit_cases(Machine& machine);
std::vector<Case> gemm_cases(Machine& machine);
std::vector<Case> conv_cases(Machine& machine);
std::vector<Case> memory_cases(Machine& machine);
std::vector<Case> operator_cases(Machine& machine);
std::vector<Case> step_cases(Machine& machine);
std::vector<Case> model_cases(Machine& machine);
std::vector<Case> attention_cases(Machine& machine);
std::vector<Case> transformer_cases(Machine& machine);
std::vector<Case> phase_cases();
std::vector<Case> stage_cases();
std::vector<Case> message_cases(Machine& machine);
std::vector<Case> loop_cases();
std::vector<Case> collective_cases(Machine& machine);
std::vector<Case> compile_cases();
std::vector<Case> checkpoint_cases();

/// Returns the median of at least one value.
double median(std::vector<double> values);

}  // namespace sluice::bench
