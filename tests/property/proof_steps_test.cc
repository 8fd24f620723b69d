// The steps of a proof do not grow with the micro-batches of a training step.
#include <gtest/gtest.h>

#include "random_graph_run.h"
#include "sluice/check/checker.h"
#include "training_programs.h"

namespace sluice::property {
namespace {

using train::PipelinedExecution;
using train::Schedule;
using train::Stage;

/// Returns the smallest limit of steps with which the checker proves a plan.
int64_t steps_of_proof(const exe::Executable& e) {
  EXPECT_TRUE(check::violations(e).empty());
  int64_t low = 0, high = 1 << 16;
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (check::violations(e, {.max_steps = middle}).empty() ? high : low) = middle;
  }
  return high;
}

exe::Executable plan(const train::Strategy& strategy, int64_t accumulate, int devices) {
  Ir ir;
  build_training(ir, skip_network(), nn::Optimizer::adam(),
                 {.strategy = strategy, .accumulate = accumulate});
  return compiled(ir, devices).executable;
}

TEST(ProofSteps, DoNotGrowWithTheMicroBatches) {
  const auto expect_equal = [](const train::Strategy& strategy, int devices) {
    const int64_t few = steps_of_proof(plan(strategy, 50, devices));
    // The last iterations differ, because the loop is left after whole periods only.
    const exe::Executable many = plan(strategy, 5000, devices);
    EXPECT_TRUE(check::violations(many, {.max_steps = few + few / 4}).empty()) << few;
    EXPECT_FALSE(check::violations(many, {.max_steps = few / 2}).empty());
  };
  expect_equal(train::resident(), 1);
  expect_equal(train::sharded(), 5);
  expect_equal(PipelinedExecution{{}, Schedule::kSequential}, 5);
  const std::vector<Stage> two{Stage("first", "row0"), Stage("row1", "row2", "last")};
  for (const Schedule schedule : {Schedule::kGrouped, Schedule::kInterleaved})
    expect_equal(PipelinedExecution{two, schedule}, 2);
}

// Optimizer state in remote memory, many updates a call: the outer loop is left early although each
// of its iterations leaves an inner loop early, or moves the entries of every variable.
TEST(ProofSteps, DoNotGrowWithTheUpdatesOfACall) {
  const auto plan_of = [](const train::Strategy& strategy, int devices, int64_t accumulate,
                          int64_t updates) {
    Ir ir;
    build_training(ir, skip_network(), nn::Optimizer::adam(),
                   {.strategy = strategy,
                    .accumulate = accumulate,
                    .device_iterations = updates,
                    .locations = {.optimizer = train::Location::kRemote}});
    return compiled(ir, devices).executable;
  };
  const auto expect_equal = [&](const train::Strategy& strategy, int devices, int64_t accumulate) {
    const exe::Executable many = plan_of(strategy, devices, accumulate, 20'000);
    const int64_t few = steps_of_proof(many);
    const exe::Executable more = plan_of(strategy, devices, accumulate, 200'000);
    EXPECT_EQ(check::violations(more, {.max_steps = few + few / 4}).size(), 0) << few;
    exe::Executable damaged = more;
    std::swap(damaged.programs.back().remote[0].found, damaged.programs.back().remote[1].found);
    EXPECT_NE(check::violations(damaged, {.max_steps = few + few / 4}).size(), 0);
  };
  const std::vector<Stage> two{Stage("first", "row0"), Stage("row1", "row2", "last")};
  expect_equal(train::resident(), 1, 1);
  expect_equal(train::resident(), 1, 40);
  expect_equal(PipelinedExecution{two, Schedule::kGrouped}, 2, 3);
  expect_equal(PipelinedExecution{two, Schedule::kInterleaved}, 2, 40);
}

}  // namespace
}  // namespace sluice::property
