#include "sluice/train/pipeline/choose_depths.h"
#include "sluice/train/cut/test_ids.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <tuple>

#include "sluice/base/error.h"
#include "sluice/train/pipeline/test_orders.h"

namespace sluice::train {
namespace {

using testing::ElementsAre;

// Costs of equal stages that store 100 bytes for a micro-batch in flight.
PipelineCosts equal_costs(int stages, double message) {
  PipelineCosts costs;
  costs.stages.assign(static_cast<size_t>(stages), {1, 2, message});
  costs.activation_bytes.assign(costs.stages.size(), 100);
  return costs;
}

double total(const PipelineCosts& costs, const std::vector<int>& depths, int64_t micro_batches) {
  return simulate_pipeline(training_order(depths), micro_batches, costs.stages, costs.devices)
      .total;
}

int sum(const std::vector<int>& depths) { return std::accumulate(depths.begin(), depths.end(), 0); }

// Costs of stages whose times and bytes differ.
PipelineCosts uneven_costs(double message) {
  return {{{1, 2, message}, {1.5, 1.5, 2 * message}, {0.5, 2.5, message}, {1, 1, 0}},
          {300, 100, 50, 200}};
}

// Tries all depths with a complete simulation.
std::vector<int> best_of_all(const PipelineCosts& costs, int64_t micro_batches) {
  double min = std::numeric_limits<double>::infinity();
  const auto all = all_depths(static_cast<int>(costs.stages.size()));
  for (const std::vector<int>& depths : all)
    min = std::min(min, total(costs, depths, micro_batches));
  std::tuple<int64_t, int, std::vector<int>> best = {std::numeric_limits<int64_t>::max(), 0, {}};
  for (const std::vector<int>& depths : all) {
    if (total(costs, depths, micro_batches) > 1.001 * min) continue;
    int64_t bytes = 0;
    for (const StageId s : costs.activation_bytes.ids())
      bytes += std::min<int64_t>(depths[s.value()], micro_batches) * costs.activation_bytes[s];
    best = std::min(best, {bytes, sum(depths), depths});
  }
  return std::get<2>(best);
}

TEST(ChooseDepths, AreTheLeastWithoutMessages) {
  for (int stages = 1; stages <= 10; ++stages) {
    for (const int64_t micro_batches : {1, 5, 100})
      EXPECT_EQ(choose_depths(equal_costs(stages, 0), micro_batches),
                depths_of(Schedule::kInterleaved, stages));
  }
}

TEST(ChooseDepths, HideMessages) {
  EXPECT_EQ(choose_depths(equal_costs(4, 1), 128), depths_of(Schedule::kGrouped, 4));
  const auto twelve = choose_depths(equal_costs(12, 1), 200);
  EXPECT_LT(total(equal_costs(12, 1), twelve, 200),
            0.8 * total(equal_costs(12, 1), depths_of(Schedule::kInterleaved, 12), 200));
  int last = 0;
  for (const double message : {0.0, 0.1, 0.25, 0.5, 1.0}) {
    const int depth = sum(choose_depths(equal_costs(6, message), 64));
    EXPECT_GE(depth, last) << "messages of " << message << " s";
    last = depth;
  }
  EXPECT_GT(last, 21);
}

TEST(ChooseDepths, AreTheBestOfAll) {
  for (const double message : {0.0, 0.05, 0.2, 0.4, 0.8, 1.6}) {
    for (const int64_t micro_batches : {1, 3, 6, 64, 128, 129, 1000}) {
      EXPECT_EQ(choose_depths(uneven_costs(message), micro_batches),
                best_of_all(uneven_costs(message), micro_batches))
          << micro_batches << " micro-batches, messages of " << message << " s";
      EXPECT_EQ(choose_depths(equal_costs(5, message), micro_batches),
                best_of_all(equal_costs(5, message), micro_batches));
    }
  }
}

TEST(ChooseDepths, KeepBudgets) {
  PipelineCosts costs = equal_costs(4, 1);
  double last = std::numeric_limits<double>::infinity();
  for (int sets = 4; sets <= 8; ++sets) {
    costs.budgets = {100 * sets, 1000, 1000, 1000};
    const auto depths = choose_depths(costs, 128);
    EXPECT_LE(depths[0], sets);
    const double seconds = total(costs, depths, 128);
    EXPECT_LE(seconds, 1.001 * last);
    last = seconds;
  }
  costs.budgets = {599, 1000, 1000, 1000};
  EXPECT_EQ(choose_depths(costs, 128)[0], 5);
  costs.budgets = {1000, 1000, 200, 1000};
  EXPECT_EQ(choose_depths(costs, 128)[2], 2);
  costs.budgets = {1000, 299, 1000, 1000};  // Even S - s does not fit.
  EXPECT_THAT(choose_depths(costs, 128), ElementsAre(4, 3, 2, 1));
}

// With fewer micro-batches than the depth, a stage stores no more than these.
TEST(ChooseDepths, CountTheMicroBatchesThatExist) {
  PipelineCosts costs = equal_costs(4, 1);
  const auto unlimited = choose_depths(costs, 3);
  costs.budgets = {300, 300, 300, 100};
  EXPECT_EQ(choose_depths(costs, 3), unlimited);
  EXPECT_NE(unlimited, depths_of(Schedule::kInterleaved, 4));
}

// A long run gains less than 0.1 % by a shorter ramp, so it chooses the depths that store the
// fewest bytes. It is so long that the end of the run is extrapolated.
TEST(ChooseDepths, DependOnTheLengthOfTheRun) {
  PipelineCosts costs = equal_costs(8, 0.25);
  costs.stages[StageId(3)] = {1.5, 3, 0.25};
  const auto min = depths_of(Schedule::kInterleaved, 8);
  const int64_t few = 60, many = 10000;
  EXPECT_GT(total(costs, min, few), 1.001 * total(costs, choose_depths(costs, few), few));
  EXPECT_EQ(choose_depths(costs, many), min);
  EXPECT_LT(total(costs, min, many), 1.001 * total(costs, depths_of(Schedule::kGrouped, 8), many));
}

TEST(ChooseDepths, OfManyStagesAreCloseToTheBest) {
  for (const double message : {0.2, 0.4, 0.6}) {
    PipelineCosts costs = equal_costs(9, message);
    for (const StageId s : costs.stages.ids()) costs.stages[s].forward += 0.1 * (s % 3);
    costs.budgets = {1300, 1400, 1200, 800, 700, 500, 500, 300, 100};
    double min = std::numeric_limits<double>::infinity();
    for (const std::vector<int>& depths : all_depths(9)) {
      bool fits = true;
      for (const DeviceId d : costs.budgets.ids())
        fits &= 100 * depths[d.value()] <= costs.budgets[d];
      if (fits) min = std::min(min, total(costs, depths, 50));
    }
    const auto depths = choose_depths(costs, 50);
    for (const DeviceId d : costs.budgets.ids())
      EXPECT_LE(100 * depths[d.value()], costs.budgets[d]);
    EXPECT_LE(total(costs, depths, 50), 1.002 * min) << "messages of " << message << " s";
  }
}

TEST(ChooseDepths, StagesOfADeviceShareItsBudget) {
  PipelineCosts costs = equal_costs(4, 1);
  costs.devices = on_devices({0, 0, 1, 2});
  EXPECT_THAT(choose_depths(costs, 64), ElementsAre(6, 5, 2, 1));
  costs.budgets = {1000, 1000, 1000};  // Device 0 has room for 10 micro-batches.
  const auto depths = choose_depths(costs, 64);
  EXPECT_LE(depths[0] + depths[1], 10);
  EXPECT_GT(depths[0] + depths[1], 7);
  costs.budgets = {699, 1000, 1000};
  EXPECT_THAT(choose_depths(costs, 64), ElementsAre(4, 3, 2, 1));
}

TEST(ChooseDepths, RefusesWrongInput) {
  PipelineCosts costs = equal_costs(3, 1);
  EXPECT_THROW(choose_depths(costs, 0), Error);
  EXPECT_THROW(choose_depths({}, 4), Error);
  costs.budgets = {1, 2};
  EXPECT_THROW(choose_depths(costs, 4), Error);
  costs.budgets = {1000, 1000, -1};
  EXPECT_THROW(choose_depths(costs, 4), Error);
  costs = equal_costs(3, 1);
  costs.activation_bytes = {1, 2};
  EXPECT_THROW(choose_depths(costs, 4), Error);
}

// Each device of a step keeps its own budget.
TEST(ChooseDepths, CountTheBytesOfConcurrentStages) {
  PipelineCosts costs = equal_costs(4, 1);
  costs.steps = {0, 1, 1, 2};
  costs.devices = on_devices({0, 1, 2, 3});
  EXPECT_EQ(choose_depths(costs, 100), depths_of(Schedule::kGrouped, 3));
  for (const int device : {1, 2}) {
    costs.budgets = {1000, 1000, 1000, 1000};
    costs.budgets[DeviceId(device)] = 2 * costs.activation_bytes[StageId(device)];
    EXPECT_EQ(choose_depths(costs, 100)[1], 2) << device;
  }
}

}  // namespace
}  // namespace sluice::train
