#include <gtest/gtest.h>

#include <iostream>

#include "dry_run.h"
#include "mutants.h"
#include "mutations/mutate.h"
#include "random_graph_run.h"
#include "sluice/check/checker.h"
#include "sluice/compiler/compile.h"

namespace sluice::property {
namespace {

TEST(Mutants, OfRandomProgramsAreRefused) {
  std::vector<std::string> kinds = mutation_kinds();
  // A wrong number of trips changes values, not places. A plan of a random program need not name a
  // value that only the right number makes.
  std::erase(kinds, "trips off by one");
  MutantCount count;
  for (uint64_t seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE(seed);
    const RandomProgram program = random_program({seed, {}});
    expect_mutants_refused(compiled(program.ir, 1).executable, seed, 2, count, kinds);
  }
  print(count);
  EXPECT_GE(count.defects, 1000);
  for (const char* kind : {"row off by one", "store dropped", "load dropped", "another buffer",
                           "wait moved", "issue moved", "wait past the border"}) {
    EXPECT_GT(count.defects_by_kind[kind], 0) << kind;
  }
}

TEST(Mutants, OfRandomProgramsOfTwoDevicesAreRefused) {
  std::vector<std::string> kinds = mutation_kinds();
  std::erase(kinds, "trips off by one");
  MutantCount count;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    const RandomProgram program = random_program({seed, {}, 2});
    expect_mutants_refused(compiled(program.ir, 2).executable, seed, 2, count, kinds);
  }
  print(count);
  EXPECT_GE(count.defects, 2000);
  for (const std::string& kind : message_kinds()) {
    // Two devices seldom wait for each other in a cycle.
    if (kind == "channel one slot short") continue;
    EXPECT_GT(count.defects_by_kind[kind], 0) << kind;
  }
}

// A mutant of a message that the checker accepts computes the values of the right plan, in any
// order of execution.
TEST(Mutants, OfMessagesAreRefusedOrRunAlike) {
  int refused = 0, alike = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    const RandomProgram program = random_program({seed, {}, 2});
    const Outcome want = interpreted(program, Remote::kShown);
    const std::vector<std::string> disable =
        seed % 2 == 0 ? std::vector<std::string>{} : std::vector<std::string>{"inline"};
    Compiled plan = compiled(program.ir, 2, disable);
    const RightRuns right(plan.executable);
    for (const Mutant& m : mutate(plan.executable, seed, 6, message_kinds())) {
      if (!check::violations(m.plan).empty()) {
        ++refused;
        continue;
      }
      ++alike;
      EXPECT_EQ(right.difference(m.plan), "") << m.kind << " at " << m.about;
      plan.executable = m.plan;
      EXPECT_EQ(bit_difference(want, by_values(program, plan)), "") << m.kind << " at " << m.about;
    }
  }
  std::cout << fmt::format("{} mutants refused, {} run alike\n", refused, alike);
  EXPECT_GT(refused, 500);
  EXPECT_GT(alike, 20);
}

}  // namespace
}  // namespace sluice::property
