// Kernels touch what their plan says and nothing else: whole programs with every operand alone between guard pages.

#include <gtest/gtest.h>

#include "../property/random_graph_run.h"
#include "../session/mlp.h"
#include "guarded_device.h"

namespace sluice::test {
namespace {

DeviceChoice guarded(const std::shared_ptr<GuardedRuns>& runs) {
  DeviceChoice choice = cpu_device({.threads = 1});
  choice.device = guarded_device(runs);
  return choice;
}

TEST(GuardedKernels, TrainTheMlpToTheSameBits) {
  const MlpProgram p({.layers = 2, .width = 96, .style = Layers::kOutlined});
  const auto runs = std::make_shared<GuardedRuns>();
  Session plain(p.ir, {.device = cpu_device({.threads = 1})});
  Session careful(p.ir, {.device = guarded(runs)});
  EXPECT_EQ(train(careful, p, 5), train(plain, p, 5));
  EXPECT_EQ(all_bytes(careful), all_bytes(plain));
  EXPECT_GT(runs->tasks, 100);
}

TEST(GuardedKernels, RunRandomProgramsAsTheInterpreterDoes) {
  const auto runs = std::make_shared<GuardedRuns>();
  for (uint64_t seed = 0; seed < 150; ++seed) {
    const property::RandomProgram program = property::random_program({seed, {}});
    const property::Outcome want = property::interpreted(program);
    const std::string wrong =
        property::difference(want, property::executed(program, {.device = guarded(runs)}));
    ASSERT_EQ(wrong, "") << "seed " << seed;
  }
  EXPECT_GT(runs->tasks, 10000);
}

}  // namespace
}  // namespace sluice::test
