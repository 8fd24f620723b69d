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

/// Compares the transfers and collectives of each program with what the program announces, and the
/// steps that its walk takes with the options' limit. It multiplies trips instead of walking them,
/// so that a loop of any length is judged at once.
class Counts {
 public:
  /// All arguments must outlive it.
  Counts(const exe::Executable& executable, const std::vector<FunctionFacts>& facts);

  /// Whether all counts of a program are as announced, and its walk, once for each of `walks`
  /// replicas, within the limit. Adds what is not to the findings.
  bool agree(const exe::Program& program, const Options& options, int64_t walks,
             Findings& findings) const;

 private:
  struct Moved {
    int64_t loads = 0;
    int64_t stores = 0;
  };
  /// One activation of a function, its callees included. Numbers of more than 63 bits stay at the
  /// largest.
  struct Total {
    int64_t steps = 0;  ///< Least steps of a walk: loops that it leaves early count once.
    std::map<int32_t, int64_t> streams;
    std::map<std::pair<int32_t, int32_t>, int64_t> collectives;  ///< By device and group.
    std::map<int32_t, Moved> remote;
  };

  static void add(const Total& from, int64_t times, Total& to);
  Total total(const exe::Function& f) const;
  void add_step(const exe::Function& f, const exe::Step& step, Total& sum) const;

  const exe::Executable& e_;
  const std::vector<FunctionFacts>& facts_;
  std::vector<Total> functions_;
};

}  // namespace sluice::check
