#include <gtest/gtest.h>

#include "mutants.h"
#include "mutate.h"
#include "random_graph_run.h"
#include "sluice/compiler/compile.h"

namespace sluice::property {
namespace {

TEST(Mutants, OfRandomProgramsAreRefused) {
  std::vector<std::string> kinds = mutation_kinds();
  // How often a loop runs is what a program means, not where its bytes lie: a random one need not name a value that only
  // one count makes.
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
  MutantCount count;
  for (uint64_t seed = 0; seed < 120; ++seed) {
    SCOPED_TRACE(seed);
    const RandomProgram program = random_two_device_program(seed);
    expect_mutants_refused(compiled(program.ir, 2).executable, seed, 3, count);
  }
  print(count);
  EXPECT_GE(count.defects, 2000);
  for (const char* kind : {"message swapped", "sync dropped", "steps swapped"})
    EXPECT_GT(count.defects_by_kind[kind], 0) << kind;
}

}  // namespace
}  // namespace sluice::property
