// Kernels touch only the bytes that their plan names. Runs whole programs with every operand alone
// between guard pages.

#include <gtest/gtest.h>

#include "../property/random_graph_run.h"
#include "../support/mlp.h"
#include "guarded_device.h"

namespace sluice::test {
namespace {

DeviceChoice guarded(const std::shared_ptr<int64_t>& tasks) {
  DeviceChoice choice = cpu_device({.threads = 1});
  choice.device = guarded_device(tasks);
  return choice;
}

TEST(GuardedKernels, TrainTheMlpToTheSameBits) {
  const MlpProgram p({.layers = 2, .width = 96, .style = Layers::kOutlined});
  const auto tasks = std::make_shared<int64_t>(0);
  Session plain(p.ir, {.device = cpu_device({.threads = 1})});
  Session careful(p.ir, {.device = guarded(tasks)});
  EXPECT_EQ(train(careful, p, 8), train(plain, p, 8));
  EXPECT_EQ(all_bytes(careful), all_bytes(plain));
  EXPECT_GT(*tasks, 100);
}

TEST(GuardedKernels, RunRandomProgramsAsTheInterpreterDoes) {
  const auto tasks = std::make_shared<int64_t>(0);
  for (uint64_t seed = 0; seed < 150; ++seed) {
    const property::RandomProgram program = property::random_program({seed, {}});
    const property::Outcome want = property::interpreted(program);
    const std::string wrong =
        property::difference(want, property::executed(program, {.device = guarded(tasks)}));
    ASSERT_EQ(wrong, "") << "seed " << seed;
  }
  EXPECT_GT(*tasks, 10000);
}

}  // namespace
}  // namespace sluice::test
