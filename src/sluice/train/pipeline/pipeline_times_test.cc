#include "sluice/train/pipeline/pipeline_times.h"
#include "sluice/train/cut/test_ids.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "sluice/base/error.h"
#include "sluice/train/pipeline/test_orders.h"

namespace sluice::train {
namespace {

using testing::ElementsAre;

Ids<StageId, StageTimes> equal_stages(int stages, double forward, double backward,
                                      double message = 0) {
  return Ids<StageId, StageTimes>(static_cast<size_t>(stages), {forward, backward, message});
}

std::string percent(double share) { return fmt::format("{:.1f}", 100 * share); }

// Devices that wait for data alone run interleaved as fast as grouped, also if a backward task
// takes twice as long. The reference has bubbles of interleaved with b = 2f (33.3 % in the first
// row), but it assumes devices in lock step.
TEST(PipelineTimes, HasTheBubblesOfTheReference) {
  struct Expected {
    int stages;
    int64_t micro_batches;
    std::string bubble, sequential;
  };
  for (const Expected& row : std::vector<Expected>{{2, 4, "20.0", "50.0"},
                                                   {2, 16, "5.9", "50.0"},
                                                   {4, 8, "27.3", "75.0"},
                                                   {4, 16, "15.8", "75.0"},
                                                   {4, 32, "8.6", "75.0"},
                                                   {4, 64, "4.5", "75.0"},
                                                   {8, 32, "17.9", "87.5"},
                                                   {8, 128, "5.2", "87.5"}}) {
    for (const double backward : {1.0, 2.0}) {
      const auto times = equal_stages(row.stages, 1, backward);
      const auto bubble = [&](const PipelineOrder& order) {
        return percent(simulate_pipeline(order, row.micro_batches, times).bubble);
      };
      EXPECT_EQ(bubble(training_order(Schedule::kGrouped, row.stages)), row.bubble);
      EXPECT_EQ(bubble(training_order(Schedule::kInterleaved, row.stages)), row.bubble);
      EXPECT_EQ(bubble(training_order(Schedule::kSequential, row.stages)), row.sequential);
      EXPECT_EQ(bubble(evaluation_order(row.stages)), row.bubble);
    }
  }
}

TEST(PipelineTimes, HasTheTotalsOfTheReference) {
  const double forward = 1, backward = 2;
  for (int stages = 1; stages <= 6; ++stages) {
    const auto times = equal_stages(stages, forward, backward);
    for (const int64_t micro_batches : {1, 2, 3, 8, 20}) {
      const auto n = static_cast<double>(micro_batches);
      const auto total = [&](const PipelineOrder& order) {
        return simulate_pipeline(order, micro_batches, times).total;
      };
      for (const std::vector<int>& depths : all_depths(stages))
        ASSERT_EQ(total(training_order(depths)), (n + stages - 1) * (forward + backward));
      EXPECT_EQ(total(training_order(Schedule::kGrouped, stages)),
                (n + stages - 1) * (forward + backward));
      EXPECT_EQ(total(training_order(Schedule::kSequential, stages)),
                n * stages * (forward + backward));
      EXPECT_EQ(total(evaluation_order(stages)), (n + stages - 1) * forward);
    }
  }
}

// The slowest stage limits the steady state: here stage 1, which computes for 5 s for each
// micro-batch and never waits. Stage 0 computes before it and after it.
TEST(PipelineTimes, StagesOfOtherTimes) {
  const Ids<StageId, StageTimes> times = {{1, 1, 0}, {2, 3, 0}, {1, 2, 0}};
  const auto result = simulate_pipeline(training_order(Schedule::kGrouped, 3), 10, times);
  EXPECT_EQ(result.total, 1 + 10 * 5 + 1);
  EXPECT_THAT(result.busy.items(), ElementsAre(20, 50, 30));
  EXPECT_DOUBLE_EQ(result.bubble, 1 - 100 / (3 * result.total));
}

// A row has the totals for depths of S - s + e, at most 2(S - s) - 1, for e = 0 to 3. Grouped has
// the last totals too. In lock step it would not hide messages.
TEST(PipelineTimes, DepthsHideMessages) {
  const std::vector<std::vector<int>> depths = {
      {4, 3, 2, 1}, {5, 4, 3, 1}, {6, 5, 3, 1}, {7, 5, 3, 1}};
  struct Expected {
    double message;
    std::vector<std::string> totals;
  };
  for (const Expected& row : std::vector<Expected>{{0, {"393.0", "393.0", "393.0", "393.0"}},
                                                   {0.1, {"412.6", "408.2", "401.8", "393.6"}},
                                                   {0.25, {"442.0", "434.0", "421.0", "394.5"}},
                                                   {0.5, {"491.0", "477.0", "453.0", "396.0"}},
                                                   {1, {"589.0", "564.0", "519.0", "399.0"}}}) {
    const auto times = equal_stages(4, 1, 2, row.message);
    std::vector<std::string> totals;
    for (const std::vector<int>& d : depths)
      totals.push_back(
          fmt::format("{:.1f}", simulate_pipeline(training_order(d), 128, times).total));
    EXPECT_EQ(totals, row.totals) << "messages of " << row.message << " s";
    const auto grouped = simulate_pipeline(training_order(Schedule::kGrouped, 4), 128, times);
    EXPECT_EQ(fmt::format("{:.1f}", grouped.total), row.totals[3]);
  }
}

// Messages that take longer than a task follow each other: 1 + 5 s until the first one has arrived,
// 5 s for each of the others.
TEST(PipelineTimes, OneMessagePassesAtATime) {
  EXPECT_EQ(simulate_pipeline(evaluation_order(2), 10, equal_stages(2, 1, 0, 5)).total,
            1 + 10 * 5 + 1);
}

TEST(PipelineTimes, StagesShareADevice) {
  const auto times = equal_stages(4, 1, 2, 10);
  const auto result =
      simulate_pipeline(training_order(Schedule::kGrouped, 4), 8, times, on_devices({1, 1, 1, 1}));
  EXPECT_EQ(result.total, 8 * 4 * 3);  // Without messages.
  EXPECT_THAT(result.busy.items(), ElementsAre(0, 96));
  EXPECT_EQ(result.bubble, 0);  // Device 0 has no stage.

  // Device 0 runs F1 of stages 0 and 1, then F2 of both: 4 s. Device 1 waits for the message of F2.
  const auto two =
      simulate_pipeline(evaluation_order(4), 2, equal_stages(4, 1, 0, 1), on_devices({0, 0, 1, 1}));
  EXPECT_THAT(two.busy.items(), ElementsAre(4, 4));
  EXPECT_EQ(two.total, 4 + 1 + 2);
}

TEST(PipelineTimes, SimulatesEachTaskOnce) {
  const auto times = equal_stages(8, 1, 2, 0.5);
  const auto order = training_order(Schedule::kGrouped, 8);
  for (const int64_t micro_batches : {int64_t{1}, int64_t{100}, int64_t{4096}}) {
    const auto result = simulate_pipeline(order, micro_batches, times);
    EXPECT_EQ(result.tasks, 2 * 8 * micro_batches);
    EXPECT_EQ(result.total, 3 * (micro_batches + 7) + 2 * 7 * 0.5);
  }
}

// The largest number of micro-batches costs no more tasks than 4,097.
TEST(PipelineTimes, SimulatesALimitedNumberOfTasks) {
  const auto times = equal_stages(8, 1, 2, 0.5);
  const auto order = training_order(Schedule::kGrouped, 8);
  for (const int64_t micro_batches : {int64_t{4097}, int64_t{10000}, int64_t{2147483647}}) {
    const auto result = simulate_pipeline(order, micro_batches, times);
    EXPECT_EQ(result.tasks, 2 * 8 * (4096 + 2048));
    EXPECT_EQ(result.total, 3.0 * static_cast<double>(micro_batches + 7) + 2 * 7 * 0.5);
  }
}

TEST(PipelineTimes, RefusesWrongInput) {
  const PipelineOrder order = training_order(Schedule::kGrouped, 3);
  const auto times = equal_stages(3, 1, 2);
  EXPECT_THROW(simulate_pipeline(order, 0, times), Error);
  EXPECT_THROW(simulate_pipeline(order, 4, equal_stages(2, 1, 2)), Error);
  EXPECT_THROW(simulate_pipeline(order, 4, equal_stages(3, -1, 2)), Error);
  EXPECT_THROW(simulate_pipeline(order, 4, equal_stages(3, 1, NAN)), Error);
  EXPECT_THROW(simulate_pipeline(order, 4, times, on_devices({0, 1})), Error);
  EXPECT_EQ(simulate_pipeline(order, 4, equal_stages(3, 0, 0)).bubble, 0);
}

// Concurrent stages run at the same time only on devices of their own.
TEST(PipelineTimes, ConcurrentStagesAreBesideEachOther) {
  const PipelineOrder order = split_stages(training_order(Schedule::kGrouped, 3), {0, 1, 1, 2});
  const auto total = [&](const Ids<StageId, StageTimes>& times,
                         std::initializer_list<int> devices) {
    const PipelineTimes result = simulate_pipeline(order, 100, times, on_devices(devices));
    double busy = 0;
    for (const double seconds : result.busy) busy += seconds;
    double sum = 0;
    for (const StageTimes& t : times) sum += 100 * (t.forward + t.backward);
    EXPECT_NEAR(busy, sum, 1e-9);
    return result.total;
  };
  const auto times = equal_stages(4, 1, 2);
  EXPECT_EQ(total(times, {0, 1, 2, 3}), (100 + 2) * 3);
  EXPECT_EQ(total(times, {0, 2, 1, 3}), (100 + 2) * 3);
  EXPECT_GE(total(times, {0, 1, 1, 3}), 100 * 6);
  EXPECT_GE(total(times, {0, 1, 2, 2}), 100 * 6);
  EXPECT_EQ(total(times, {0, 1, 2, 2}), total(times, {0, 2, 1, 2}));
  // The slower one of both delays the last stage.
  auto slow = times;
  slow[StageId(1)].backward = 4;
  EXPECT_GE(total(slow, {0, 1, 2, 3}), 100 * 5);
}

// Later micro-batches take the time of the slowest stage.
TEST(PipelineTimes, ExtrapolatesManyMicroBatches) {
  auto times = equal_stages(3, 1, 2);
  times[StageId(1)].forward = 1.5;
  const auto total = [&](int64_t count) {
    return simulate_pipeline(training_order(Schedule::kGrouped, 3), count, times).total;
  };
  EXPECT_DOUBLE_EQ(total(1'000'000) - total(4096), (1'000'000 - 4096) * 3.5);
}

}  // namespace
}  // namespace sluice::train
