#pragma once
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "sluice/check/checker.h"
#include "sluice/check/findings.h"
#include "sluice/check/function_facts.h"
#include "sluice/exe/executable.h"

namespace sluice::check {

/// Compares the transfers and collectives of each program with the announced counts, and its steps
/// with the limit of the options. Multiplies by trip counts instead of iterating over loops, so the
/// cost does not depend on them.
class Counts {
 public:
  /// All arguments must outlive the object.
  Counts(const exe::Executable& executable, const FactsOfFunctions& facts);

  /// Returns whether all counts of a program are as announced and its simulation stays within the
  /// limit of steps. `walks` is the number of replicas that are simulated. Adds a violation for
  /// each wrong count.
  bool agree(const exe::Program& program, const Options& options, int64_t walks,
             Findings& findings) const;

 private:
  struct Moved {
    int64_t loads = 0;
    int64_t stores = 0;
  };
  /// Counts of one activation of a function, its callees included. Sums saturate at INT64_MAX.
  struct Total {
    /// Minimum number of simulated steps: a loop that is left early counts as one step.
    int64_t steps = 0;
    std::map<exe::StreamId, int64_t> streams;
    std::map<std::pair<exe::DeviceId, exe::GroupId>, int64_t> collectives;
    std::map<exe::BufferId, Moved> remote;
  };

  /// Adds all counts but the steps.
  static void add(const Total& from, int64_t times, Total& to);
  Total total(const exe::Function& f) const;
  void add_step(const exe::Function& f, const exe::Step& step, Total& sum) const;

  const exe::Executable& e_;
  const FactsOfFunctions& facts_;
  Ids<exe::FunctionId, Total> functions_;
};

}  // namespace sluice::check
