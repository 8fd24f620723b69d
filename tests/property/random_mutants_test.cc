// Damages plans of random programs: the checker refuses each defect by a rule of its kind.
#include <gtest/gtest.h>

#include "damage.h"
#include "dry_run.h"
#include "mutations/mutate.h"
#include "random_graph_run.h"

namespace sluice::property {
namespace {

/// All kinds but "trips off by one": a wrong trip count changes values, not addresses. A plan of a
/// random program need not name a value that only the right number makes.
std::vector<std::string> kinds_of_random_programs() {
  return kinds_without(mutation_kinds(), {"trips off by one"});
}

TEST(Mutants, OfRandomProgramsAreRefused) {
  Tally tally;
  for (uint64_t seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE(seed);
    const exe::Executable right = compiled(random_program({seed, {}}).ir, 1).executable;
    tally += judge({.right = right, .dry_runs = dry_runs(right)},
                   mutations(right, seed, 2, kinds_of_random_programs()));
  }
  print(tally);
  EXPECT_GE(tally.count(Verdict::kDefect), 1000);
  expect_defects(tally, {"row off by one", "store dropped", "load dropped", "another buffer",
                         "wait moved", "issue moved", "wait past the border"});
}

// A damaged message that the checker accepts also leaves the values of the interpreter.
TEST(Mutants, OfRandomProgramsOfTwoDevicesAreRefused) {
  const std::vector<std::string> messages = message_kinds();
  const std::vector<std::string> all = kinds_of_random_programs();
  const std::vector<std::string> others = kinds_without(all, messages);
  Tally tally, of_messages;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    const RandomProgram program = random_program({seed, {}, 2});
    Compiled plan = compiled(program.ir, 2);
    PlanUnderTest under_test{.right = plan.executable, .dry_runs = dry_runs(plan.executable)};
    tally += judge(under_test, mutations(under_test.right, seed, 2, seed % 2 == 0 ? others : all));
    if (seed % 2 == 1) {
      plan = compiled(program.ir, 2, {"inline"});
      under_test = {.right = plan.executable, .dry_runs = dry_runs(plan.executable)};
    }
    under_test.runs = value_runs(program, plan);
    of_messages += judge(under_test, mutations(under_test.right, seed, 6, messages));
  }
  EXPECT_GT(of_messages.count(Verdict::kDefect) + of_messages.count(Verdict::kChecker), 1500);
  EXPECT_GT(of_messages.count(Verdict::kAlike), 50);
  tally += of_messages;
  print(tally);
  EXPECT_GE(tally.count(Verdict::kDefect), 3500);
  // Two devices seldom wait for each other in a cycle.
  expect_defects(tally, kinds_without(messages, {"channel one slot short"}));
}

}  // namespace
}  // namespace sluice::property
