#pragma once
#include <map>
#include <string>
#include <vector>

#include "sluice/exe/executable.h"

namespace sluice::property {

/// Counts of the mutants of some plans by their result.
struct MutantCount {
  int made = 0;
  int harmless = 0;  ///< Mutants without a visible defect, whatever the checker says.
  int defects = 0;   ///< Mutants with a defect. The checker refused each by a rule of its kind.
  int by_data = 0;   ///< Defects that a dry run shows.
  std::map<std::string, int> defects_by_kind;
};

/// Damages a right plan in many ways. Expects (as gtest does) that the checker accepts the plan and
/// refuses every mutant that has a defect. Adds to `count`. `kinds` restricts the kinds of damage;
/// empty for all kinds.
void expect_mutants_refused(const exe::Executable& right, uint64_t seed, int per_kind,
                            MutantCount& count, const std::vector<std::string>& kinds = {});

/// Writes the counts to stdout, with the defects of each kind.
void print(const MutantCount& count);

}  // namespace sluice::property
