#include "sluice/ir/replica_grouping.h"

#include <gtest/gtest.h>

#include "sluice/ir/ir.h"

namespace sluice {
namespace {

using Ints = std::vector<int>;

TEST(ReplicaGrouping, AssignsByStrideAndSize) {
  EXPECT_EQ(ReplicaGrouping::make(8, 1, 2).assignment(), (Ints{0, 0, 1, 1, 2, 2, 3, 3}));
  EXPECT_EQ(ReplicaGrouping::make(8, 2, 2).assignment(), (Ints{0, 1, 0, 1, 2, 3, 2, 3}));
  EXPECT_EQ(ReplicaGrouping::make(8, 2, 4).assignment(), (Ints{0, 1, 0, 1, 0, 1, 0, 1}));
  EXPECT_EQ(ReplicaGrouping::make(4, 3, 1), ReplicaGrouping::make(4, 1, 1));
  EXPECT_EQ(ReplicaGrouping::make(4, 3, 1).stride(), 1);
  EXPECT_EQ(ReplicaGrouping(), ReplicaGrouping::make(1, 1, 1));
}

TEST(ReplicaGrouping, KnowsMembersAndPrints) {
  const ReplicaGrouping g = ReplicaGrouping::make(8, 2, 2);
  EXPECT_EQ(g.groups(), 4);
  EXPECT_EQ(g.members(3), (Ints{5, 7}));
  EXPECT_EQ(g.group_of(6), 2);
  EXPECT_EQ(g.member_of(4), 0);
  EXPECT_EQ(g.member_of(7), 1);
  EXPECT_EQ(to_string(g), "ReplicaGrouping(num_replicas=8, stride=2, group_size=2, num_groups=4)");
  EXPECT_EQ(to_string(ReplicaGrouping::from_assignments({0, 1, 1, 0})),
            "ReplicaGrouping(assignment=[0, 1, 1, 0])");
}

TEST(ReplicaGrouping, OfAssignmentsHasAStrideWhereThereIsOne) {
  for (const auto& [stride, size] : {std::pair{1, 2}, {2, 2}, {2, 4}, {4, 2}, {1, 8}, {1, 1}}) {
    const ReplicaGrouping made = ReplicaGrouping::make(8, stride, size);
    const ReplicaGrouping found = ReplicaGrouping::from_assignments(made.assignment());
    EXPECT_EQ(found, made);
    ASSERT_TRUE(found.is_constant());
    EXPECT_EQ(found.stride(), stride);
    EXPECT_EQ(found.const_rg(), made);
  }
  EXPECT_FALSE(ReplicaGrouping::from_assignments({0, 1, 1, 0}).is_constant());
  EXPECT_FALSE(ReplicaGrouping::from_assignments({0, 0, 1, 1, 2, 3, 2, 3}).is_constant());
}

TEST(ReplicaGrouping, TransposedGroupsHaveOneMemberOfEach) {
  EXPECT_EQ(ReplicaGrouping::make(8, 1, 2).transpose(), ReplicaGrouping::make(8, 2, 4));
  EXPECT_EQ(ReplicaGrouping::make(8, 2, 4).transpose(), ReplicaGrouping::make(8, 1, 2));
  EXPECT_EQ(ReplicaGrouping::make(8, 1, 1).transpose(), ReplicaGrouping::make(8, 1, 8));
  EXPECT_EQ(ReplicaGrouping::make(8, 1, 8).transpose(), ReplicaGrouping::make(8, 1, 1));
  const ReplicaGrouping odd = ReplicaGrouping::make(8, 2, 2).transpose();
  EXPECT_EQ(odd.assignment(), (Ints{0, 0, 1, 1, 0, 0, 1, 1}));
  EXPECT_FALSE(odd.is_constant());
  EXPECT_EQ(odd.transpose().assignment(), (Ints{0, 1, 0, 1, 2, 3, 2, 3}));
}

TEST(ReplicaGrouping, RefinesToOneStride) {
  // Groups {0, 1, 4, 5} and {2, 3, 6, 7}: the coarsest refinement with one stride has pairs of
  // neighbours.
  const ReplicaGrouping odd = ReplicaGrouping::from_assignments({0, 0, 1, 1, 0, 0, 1, 1});
  EXPECT_EQ(odd.const_rg(), ReplicaGrouping::make(8, 1, 2));
  EXPECT_EQ(odd.to_device_map(), (Ints{0, 1, 0, 1}));
  EXPECT_EQ(odd.to_host_map(), (Ints{0, 1}));
  const ReplicaGrouping crossed = ReplicaGrouping::from_assignments({0, 1, 1, 0});
  EXPECT_EQ(crossed.const_rg(), ReplicaGrouping::make(4, 1, 1));
  EXPECT_EQ(crossed.to_device_map(), (Ints{0, 1, 1, 0}));
  EXPECT_EQ(crossed.to_host_map(), (Ints{0, 1}));
}

TEST(ReplicaGrouping, FixesTheNumberOfReplicas) {
  Ir ir;
  ir.set_replication(8);
  EXPECT_EQ(ir.replica_grouping(), ReplicaGrouping::make(8, 1, 8));
  EXPECT_EQ(ir.replica_grouping(2), ReplicaGrouping::make(8, 2, 4));
  EXPECT_EQ(ir.replica_grouping(2, 2), ReplicaGrouping::make(8, 2, 2));
  ir.set_replication(8);
  EXPECT_EQ(ir.replication(), 8);
}

TEST(VariableParts, AreChunksOfGroupsInOrder) {
  const auto part = [](const TensorSpec& spec, const VariableInfo& info, int replica) {
    const HostPart p = host_part(spec, info, replica);
    return std::pair(p.begin, p.count);
  };
  using Pair = std::pair<int64_t, int64_t>;
  VariableInfo info;
  const TensorSpec whole{{2, 5}, f32, {}};
  EXPECT_EQ(host_spec(whole, info).shape, (Shape{2, 5}));
  EXPECT_EQ(part(whole, info, 3), Pair(0, 10));
  info.group = ReplicaGrouping::make(4, 2, 2);
  EXPECT_EQ(host_spec(whole, info).shape, (Shape{2, 2, 5}));
  EXPECT_EQ(part(whole, info, 3), Pair(10, 10));
  // Groups {0, 2} and {1, 3}; each member holds one half: 5 of 10 elements.
  info.shard = 2;
  const TensorSpec half{{5}, f32, {2, 5}};
  EXPECT_EQ(host_spec(half, info), (TensorSpec{{2, 2, 5}, f32, {}}));
  EXPECT_EQ(part(half, info, 0), Pair(0, 5));
  EXPECT_EQ(part(half, info, 2), Pair(5, 5));
  EXPECT_EQ(part(half, info, 1), Pair(10, 5));
  EXPECT_EQ(part(half, info, 3), Pair(15, 5));
  // One group of four replicas. Each pair of them holds all 5 elements, in chunks of 3.
  info.group = ReplicaGrouping::make(4, 1, 4);
  const TensorSpec odd{{3}, f32, {5}};
  EXPECT_EQ(part(odd, info, 2), Pair(0, 3));
  EXPECT_EQ(part(odd, info, 3), Pair(3, 2));
  // A chunk may begin at the end of the array; it is then empty.
  info.shard = 4;
  EXPECT_EQ(part({{1}, f32, {2}}, info, 3), Pair(2, 0));
}

}  // namespace
}  // namespace sluice
