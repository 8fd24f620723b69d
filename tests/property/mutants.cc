#include "mutants.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "dry_run.h"
#include "mutations/mutate.h"
#include "sluice/check/checker.h"

namespace sluice::property {

void expect_mutants_refused(const exe::Executable& right, uint64_t seed, int per_kind,
                            MutantCount& count, const std::vector<std::string>& kinds) {
  const std::vector<check::Violation> faults = check::violations(right);
  ASSERT_TRUE(faults.empty()) << faults[0].rule << ": " << faults[0].message;
  const RightRuns runs(right);
  ASSERT_EQ(runs.difference(right), "") << "the right plan depends on the order of execution";
  for (const Mutant& m : mutate(right, seed, per_kind, kinds)) {
    ++count.made;
    const std::string seen = runs.difference(m.plan);
    if (seen.empty() && m.shown.empty()) {
      ++count.harmless;
      continue;
    }
    ++count.defects;
    ++count.defects_by_kind[m.kind];
    count.by_data += !seen.empty();
    std::string found;
    bool named = false;
    for (const check::Violation& v : check::violations(m.plan)) {
      found += "\n  " + v.rule + ": " + v.message;
      named |= std::find(m.rules.begin(), m.rules.end(), v.rule) != m.rules.end();
    }
    EXPECT_TRUE(named) << m.kind << " at " << m.about << ": " << (m.shown.empty() ? seen : m.shown)
                       << "; the checker says:" << (found.empty() ? " nothing" : found);
  }
}

void print(const MutantCount& count) {
  for (const auto& [kind, n] : count.defects_by_kind) std::printf("%4d  %s\n", n, kind.c_str());
  std::printf("%d mutants, %d harmless, %d defects, %d of them shown by data\n", count.made,
              count.harmless, count.defects, count.by_data);
}

}  // namespace sluice::property
