#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "sluice/base/error.h"
#include "sluice/train/order/dependences.h"
#include "sluice/train/order/strategies.h"
#include "sluice/train/pipeline/test_orders.h"

namespace sluice::train {
namespace {

using testing::ElementsAre;

std::vector<int64_t> max_in_flight(const PipelineOrder& schedule, int64_t micro_batches) {
  return train::max_in_flight(staged_order(schedule, {.micro_batches = micro_batches}),
                              static_cast<size_t>(schedule.stages))
      .items();
}

TEST(InFlight, HasTheValuesOfTheReference) {
  const auto of = [](Schedule schedule) { return max_in_flight(training_order(schedule, 4), 8); };
  EXPECT_THAT(of(Schedule::kGrouped), ElementsAre(7, 5, 3, 1));
  EXPECT_THAT(of(Schedule::kInterleaved), ElementsAre(4, 3, 2, 1));
  EXPECT_THAT(of(Schedule::kSequential), ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(max_in_flight(training_order(Schedule::kGrouped, 4), 4), ElementsAre(4, 4, 3, 1));
  EXPECT_THAT(max_in_flight(evaluation_order(3), 5), ElementsAre(1, 1, 1));
  EXPECT_THROW(max_in_flight(evaluation_order(3), 0), Error);
}

// Counts in slots instead of in tasks: in the slot of each forward task, the micro-batches whose
// forward slot has come and whose backward slot has not. A backward task in the same slot has run.
std::vector<int64_t> counted(const PipelineOrder& order, int64_t micro_batches) {
  Ids<StageId, int64_t> forward(static_cast<size_t>(order.stages)), backward(forward);
  for (const PipelineTask& task : order.tasks)
    (task.backward ? backward : forward)[task.stage] = task.slot;
  Ids<StageId, int64_t> max(forward.size());
  for (const StageId s : max.ids()) {
    for (int64_t now = 0; now < micro_batches; ++now) {
      int64_t count = 0;
      for (int64_t i = 0; i < micro_batches; ++i)
        count += i <= now && backward[s] + i * order.period > forward[s] + now * order.period;
      max[s] = std::max(max[s], count);
    }
  }
  return max.items();
}

TEST(InFlight, EqualsACountOfSlots) {
  for (int stages = 1; stages <= 6; ++stages) {
    for (int64_t micro_batches = 1; micro_batches <= 12; ++micro_batches) {
      for (const PipelineOrder& order : all_training_orders(stages))
        ASSERT_EQ(max_in_flight(order, micro_batches), counted(order, micro_batches));
    }
  }
}

TEST(InFlight, IsTheDepthOrAllMicroBatches) {
  for (int stages = 1; stages <= 6; ++stages) {
    for (const std::vector<int>& depths : all_depths(stages)) {
      for (int64_t micro_batches = 1; micro_batches <= 12; ++micro_batches) {
        std::vector<int64_t> expected;
        for (const int depth : depths) expected.push_back(std::min<int64_t>(depth, micro_batches));
        ASSERT_EQ(max_in_flight(training_order(depths), micro_batches), expected);
      }
    }
  }
}

}  // namespace
}  // namespace sluice::train
