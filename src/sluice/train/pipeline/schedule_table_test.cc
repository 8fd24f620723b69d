#include "sluice/train/pipeline/schedule_table.h"
#include "sluice/train/cut/test_ids.h"

#include <gtest/gtest.h>

#include <sstream>

#include "sluice/base/error.h"

namespace sluice::train {
namespace {

const Ids<StageId, DeviceId> kFourDevices = on_devices({0, 1, 2, 3});

// Returns the cells of each line.
std::vector<std::vector<std::string>> cells(const std::string& table) {
  std::vector<std::vector<std::string>> rows;
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    rows.emplace_back();
    for (std::string word; words >> word;) rows.back().push_back(word);
  }
  return rows;
}

TEST(ScheduleTable, Grouped) {
  EXPECT_EQ(cells(schedule_table(training_order(Schedule::kGrouped, 4), 8, kFourDevices)),
            cells(R"(slot  1   2   3   4     5     6     7     8     9    10    11  12  13  14  15
D0    F1  F2  F3  F4    F5    F6    F7 B1+F8    B2    B3    B4  B5  B6  B7  B8
D1     .  F1  F2  F3    F4    F5 B1+F6 B2+F7 B3+F8    B4    B5  B6  B7  B8   .
D2     .   .  F1  F2    F3 B1+F4 B2+F5 B3+F6 B4+F7 B5+F8    B6  B7  B8   .   .
D3     .   .   .  F1 B1+F2 B2+F3 B3+F4 B4+F5 B5+F6 B6+F7 B7+F8  B8   .   .   .
)"));
}

TEST(ScheduleTable, Interleaved) {
  EXPECT_EQ(cells(schedule_table(training_order(Schedule::kInterleaved, 4), 8, kFourDevices)),
            cells(R"(slot  1  2  3  4  5  6  7  8  9 10 11 12 13 14 15 16 17 18 19 20 21 22
D0   F1  . F2  . F3  . F4 B1 F5 B2 F6 B3 F7 B4 F8 B5  . B6  . B7  . B8
D1    . F1  . F2  . F3 B1 F4 B2 F5 B3 F6 B4 F7 B5 F8 B6  . B7  . B8  .
D2    .  . F1  . F2 B1 F3 B2 F4 B3 F5 B4 F6 B5 F7 B6 F8 B7  . B8  .  .
D3    .  .  . F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7 F8 B8  .  .  .
)"));
}

TEST(ScheduleTable, Sequential) {
  EXPECT_EQ(cells(schedule_table(training_order(Schedule::kSequential, 4), 2, kFourDevices)),
            cells(R"(slot  1  2  3  4  5  6  7  8  9 10 11 12 13 14 15 16
D0   F1  .  .  .  .  .  . B1 F2  .  .  .  .  .  . B2
D1    . F1  .  .  .  . B1  .  . F2  .  .  .  . B2  .
D2    .  . F1  .  . B1  .  .  .  . F2  .  . B2  .  .
D3    .  .  . F1 B1  .  .  .  .  .  . F2 B2  .  .  .
)"));
}

TEST(ScheduleTable, Evaluation) {
  EXPECT_EQ(cells(schedule_table(evaluation_order(4), 8, kFourDevices)),
            cells(R"(slot 1 2 3 4 5 6 7 8 9 10 11
D0 F1 F2 F3 F4 F5 F6 F7 F8  .  .  .
D1  . F1 F2 F3 F4 F5 F6 F7 F8  .  .
D2  .  . F1 F2 F3 F4 F5 F6 F7 F8  .
D3  .  .  . F1 F2 F3 F4 F5 F6 F7 F8
)"));
}

// Stage 1 is later in a micro-batch, so its tasks stand before those of stage 0.
TEST(ScheduleTable, StagesOnOneDeviceShareARow) {
  EXPECT_EQ(schedule_table(training_order(Schedule::kGrouped, 3), 2, on_devices({4, 4, 0})),
            "slot  1     2  3     4  5     6  7\n"
            "D0    .     . F1 B1+F2 B2     .  .\n"
            "D4   F1 F1+F2 F2     . B1 B1+B2 B2\n");
}

TEST(ScheduleTable, AlignsItsColumns) {
  EXPECT_EQ(schedule_table(training_order(Schedule::kGrouped, 2), 4),
            "slot  1  2     3     4     5  6  7\n"
            "S0   F1 F2    F3 B1+F4    B2 B3 B4\n"
            "S1    . F1 B1+F2 B2+F3 B3+F4 B4  .\n");
}

TEST(ScheduleTable, RefusesOtherDevices) {
  const PipelineOrder order = evaluation_order(3);
  EXPECT_THROW(schedule_table(order, 4, on_devices({0, 1})), Error);
  EXPECT_THROW(schedule_table(order, 4, on_devices({0, 1, -1})), Error);
  EXPECT_THROW(schedule_table(order, 0), Error);
}

}  // namespace
}  // namespace sluice::train
