#pragma once
#include <map>
#include <string>
#include <vector>

#include "sluice/exe/executable.h"

namespace sluice::property {

/// What became of the mutants of some plans.
struct MutantCount {
  int made = 0;
  int harmless = 0;  ///< Neither the plan nor a dry run shows a defect, and the checker agrees or
                     ///< could not know.
  int defects = 0;   ///< Shown to be defects; all were refused, by a rule of their kind.
  int by_data = 0;   ///< Of these, shown by a dry run.
  std::map<std::string, int> defects_by_kind;
};

/// Damages a right plan in many ways and expects (as gtest does) that the checker accepts the plan
/// and refuses every mutant that is shown to be a defect. Adds to `count`. `kinds`: of these kinds
/// only; empty: of all.
void expect_mutants_refused(const exe::Executable& right, uint64_t seed, int per_kind,
                            MutantCount& count, const std::vector<std::string>& kinds = {});

/// Writes the counts to stdout, those of defects by kind.
void print(const MutantCount& count);

}  // namespace sluice::property
