#include "sluice/exe/process_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sluice/base/test_refusals.h"

namespace sluice::exe {
namespace {

using testing::ElementsAre;

std::vector<int> listed(const ProcessMap& map, int replicas, int devices) {
  std::vector<int> all;
  for (int r = 0; r < replicas; ++r) {
    for (int d = 0; d < devices; ++d) all.push_back(map.process_of(r, d));
  }
  return all;
}

TEST(ProcessMap, DividesReplicasFirst) {
  EXPECT_THAT(listed(ProcessMap(4, 1, 2), 4, 1), ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(listed(ProcessMap(2, 2, 2), 2, 2), ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(listed(ProcessMap(2, 2, 4), 2, 2), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(listed(ProcessMap(1, 4, 2), 1, 4), ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(listed(ProcessMap(3, 2, 2), 3, 2), ElementsAre(0, 0, 0, 1, 1, 1));
}

TEST(ProcessMap, KnowsTheReplicasOfAProcess) {
  const ProcessMap map(3, 2, 2);
  EXPECT_EQ(map.replicas_each(), 2);
  EXPECT_EQ(map.replicas_of(1).first, 1);
  EXPECT_TRUE(map.replicas_of(1).contains(2));
  EXPECT_FALSE(map.replicas_of(1).contains(0));
}

TEST(ProcessMap, DividesDevicesFirst) {
  EXPECT_THAT(ProcessMap::devices_first(2, 2, 2), ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(ProcessMap::devices_first(2, 2, 4), ElementsAre(0, 2, 1, 3));
  EXPECT_THAT(ProcessMap::devices_first(1, 4, 2), ElementsAre(0, 0, 1, 1));
}

TEST(ProcessMap, RefusesMapsThatCannotRun) {
  expect_refused({
      {"uneven replicas", [] { ProcessMap(4, 1, 3); },
       "3 processes cannot share 4 replicas evenly"},
      {"uneven devices", [] { ProcessMap(1, 4, 3); }, "3 processes cannot share 4 devices evenly"},
      {"uneven", [] { ProcessMap(2, 2, 3); },
       "3 processes cannot share 2 devices of each of 2 replicas evenly"},
      {"devices first", [] { ProcessMap::devices_first(1, 4, 3); }, "cannot share 4 devices"},
      {"length",
       [] {
         ProcessMap(2, 2, 2, {0, 1, 0});
       },
       "must have 4 numbers, one for each of 2 devices of each of 2 replicas, got 3"},
      {"number",
       [] {
         ProcessMap(1, 2, 2, {0, 2});
       },
       "each number must be in [0, 2), got 2"},
      {"idle",
       [] {
         ProcessMap(1, 2, 2, {0, 0});
       },
       "process 1 must run a device, got none"},
      {"gap",
       [] {
         ProcessMap(3, 1, 2, {0, 1, 0});
       },
       "process 0 must run devices of consecutive replicas, got replicas 0 and 2"},
      {"gap of a device",
       [] {
         ProcessMap(3, 2, 2, {0, 1, 1, 0, 0, 1});
       },
       "process 0 must run device 0 of consecutive replicas, got replicas 0 and 2"},
      {"replicas",
       [] {
         ProcessMap(2, 2, 3, {0, 1, 0, 2});
       },
       "got 2 in process 0 and 1 in process 1"},
  });
}

}  // namespace
}  // namespace sluice::exe
