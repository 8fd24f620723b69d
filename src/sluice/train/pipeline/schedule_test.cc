#include "sluice/train/pipeline/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <tuple>

#include "sluice/base/error.h"
#include "sluice/train/pipeline/schedule_table.h"
#include "sluice/train/pipeline/test_orders.h"

namespace sluice::train {
namespace {

using testing::ElementsAre;

// A task of one micro-batch.
struct Step {
  int64_t iteration = 0;
  size_t position = 0;  // In PipelineOrder::tasks.
  int stage = 0;
  bool backward = false;
  int64_t micro_batch = 0;

  std::tuple<int, int64_t, bool> key() const { return {stage, micro_batch, backward}; }
};

// Returns the tasks of all micro-batches in the order of (iteration, position).
std::vector<Step> steps_of(const PipelineOrder& order, int64_t micro_batches) {
  std::vector<Step> steps;
  for (size_t p = 0; p < order.tasks.size(); ++p) {
    const PipelineTask& task = order.tasks[p];
    for (int64_t i = 0; i < micro_batches; ++i)
      steps.push_back(
          {(task.slot + i * order.period) / order.period, p, task.stage, task.backward, i});
  }
  std::sort(steps.begin(), steps.end(), [](const Step& a, const Step& b) {
    return std::pair(a.iteration, a.position) < std::pair(b.iteration, b.position);
  });
  return steps;
}

// Returns the first fault of an order, or "" if each task of each micro-batch runs once and after
// all tasks that it depends on.
std::string fault_of(const PipelineOrder& order, int64_t micro_batches, bool trains) {
  std::set<std::tuple<int, int64_t, bool>> done;
  for (const Step& step : steps_of(order, micro_batches)) {
    const auto [s, i] = std::pair(step.stage, step.micro_batch);
    const std::string name =
        (step.backward ? "B" : "F") + std::to_string(i) + " of stage " + std::to_string(s);
    if (step.backward && !done.count({s, i, false})) return name + " runs before its forward";
    if (step.backward && s + 1 < order.stages && !done.count({s + 1, i, true}))
      return name + " runs before the stage after it";
    if (!step.backward && s > 0 && !done.count({s - 1, i, false}))
      return name + " runs before the stage before it";
    if (!done.insert(step.key()).second) return name + " runs twice";
  }
  const auto expected = static_cast<size_t>(order.stages * micro_batches * (trains ? 2 : 1));
  return done.size() == expected ? "" : "ran " + std::to_string(done.size()) + " tasks";
}

TEST(Schedule, HasTheDepthsOfTheReference) {
  EXPECT_THAT(depths_of(Schedule::kGrouped, 4), ElementsAre(7, 5, 3, 1));
  EXPECT_THAT(depths_of(Schedule::kInterleaved, 4), ElementsAre(4, 3, 2, 1));
  EXPECT_THAT(depths_of(Schedule::kSequential, 4), ElementsAre(1, 1, 1, 1));
  EXPECT_EQ(training_order(Schedule::kGrouped, 4).slots(8), 15);
  EXPECT_EQ(training_order(Schedule::kInterleaved, 4).slots(8), 22);
  EXPECT_EQ(training_order(Schedule::kSequential, 4).slots(8), 64);
  EXPECT_EQ(evaluation_order(4).slots(100), 103);
  EXPECT_EQ(training_order(Schedule::kGrouped, 4).ramp(), 7);
}

// A, B, four stages side by side, D: 4 stages instead of 7.
TEST(Schedule, CountsConcurrentStagesAsOne) {
  const Ids<StageId, int> steps{0, 1, 2, 2, 2, 2, 3};
  const PipelineOrder training = split_stages(training_order(Schedule::kGrouped, 4), steps);
  EXPECT_EQ(training_order(Schedule::kGrouped, 7).ramp() - training.ramp(), 6);
  EXPECT_EQ(evaluation_order(7).ramp() - split_stages(evaluation_order(4), steps).ramp(), 3);
  EXPECT_EQ(schedule_table(split_stages(training_order(Schedule::kGrouped, 3), {0, 1, 1, 2}), 2),
            "slot  1  2  3     4  5  6  7\n"
            "S0   F1 F2  .     .  . B1 B2\n"
            "S1    . F1 F2     . B1 B2  .\n"
            "S2    . F1 F2     . B1 B2  .\n"
            "S3    .  . F1 B1+F2 B2  .  .\n");
}

TEST(Schedule, RunsEachTaskOnceAndAfterItsOperands) {
  for (int stages = 1; stages <= 6; ++stages) {
    for (int64_t micro_batches = 1; micro_batches <= 12; ++micro_batches) {
      for (const PipelineOrder& order : all_training_orders(stages))
        ASSERT_EQ(fault_of(order, micro_batches, true), "");
      ASSERT_EQ(fault_of(evaluation_order(stages), micro_batches, false), "");
    }
  }
}

TEST(Schedule, AcceptsDepthsThatFallFromStageToStage) {
  const auto accepted = all_depths(3);
  int count = 0;
  for (int a = 0; a <= 7; ++a) {
    for (int b = 0; b <= 7; ++b) {
      for (int c = 0; c <= 7; ++c) {
        const std::vector<int> depths = {a, b, c};
        if (std::find(accepted.begin(), accepted.end(), depths) == accepted.end())
          EXPECT_THROW(training_order(depths), Error) << testing::PrintToString(depths);
        else
          count += training_order(depths).stages == 3;
      }
    }
  }
  EXPECT_EQ(count, 5);
  EXPECT_EQ(all_depths(8).size(), 1430u);
}

// In the steady state a device of the grouped schedule runs a backward task directly before each
// forward task. So a set of activations is free when the next one begins.
TEST(Schedule, GroupedRunsABackwardDirectlyBeforeEachForward) {
  for (int stages = 1; stages <= 8; ++stages) {
    const int64_t micro_batches = 3 * stages;
    std::vector<std::string> order_on_stage(static_cast<size_t>(stages));
    for (const Step& step : steps_of(training_order(Schedule::kGrouped, stages), micro_batches))
      order_on_stage[static_cast<size_t>(step.stage)] += step.backward ? 'B' : 'F';
    for (int s = 0; s < stages; ++s) {
      const int depth = 2 * (stages - s) - 1;
      std::string expected(static_cast<size_t>(depth), 'F');
      for (int64_t i = depth; i < micro_batches; ++i) expected += "BF";
      expected += std::string(static_cast<size_t>(depth), 'B');
      EXPECT_EQ(order_on_stage[static_cast<size_t>(s)], expected) << stages << " stages";
    }
  }
}

// Counts the iterations before the first one that runs all tasks, and those after the last one.
std::pair<int64_t, int64_t> ramps_of(const PipelineOrder& order) {
  const int64_t micro_batches = 40;
  std::vector<size_t> tasks(static_cast<size_t>(micro_batches + order.ramp()));
  for (const Step& step : steps_of(order, micro_batches))
    ++tasks.at(static_cast<size_t>(step.iteration));
  const auto is_full = [&](size_t count) { return count == order.tasks.size(); };
  return {std::find_if(tasks.begin(), tasks.end(), is_full) - tasks.begin(),
          std::find_if(tasks.rbegin(), tasks.rend(), is_full) - tasks.rbegin()};
}

// A pipeline A, B, {C0 to C3}, D, whose stages C run at the same time, counts as 4 stages, not 7.
TEST(Schedule, ConcurrentStagesShortenBothRamps) {
  EXPECT_EQ(ramps_of(training_order(Schedule::kGrouped, 7)), std::pair(13l, 13l));
  EXPECT_EQ(ramps_of(training_order(Schedule::kGrouped, 4)), std::pair(7l, 7l));
  EXPECT_EQ(ramps_of(evaluation_order(7)), std::pair(6l, 6l));
  EXPECT_EQ(ramps_of(evaluation_order(4)), std::pair(3l, 3l));
}

TEST(Schedule, AutoHasNoOrderOfItsOwn) { EXPECT_THROW(training_order(Schedule::kAuto, 4), Error); }

}  // namespace
}  // namespace sluice::train
