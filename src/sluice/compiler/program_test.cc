#include "sluice/compiler/program.h"

#include <gtest/gtest.h>

#include "sluice/base/test_refusals.h"
#include "sluice/compiler/analysis/body_facts.h"
#include "sluice/compiler/test_bodies.h"

namespace sluice::compiler {
namespace {

// Body 0 calls 1 and 3. Body 1 calls 3, then branches to 3 or 5. No entry reaches body 2. Body 4 is
// another entry, which calls 1.
constexpr const char* kCalls = R"(
    body main entry
      call 1
      call 3
    end
    body f function
      call 3
      branch 3 5 then 0
    end
    body lonely function
      call 3
    end
    body g function
    end
    body eval entry
      call 1
    end
    body h function
    end)";

template <typename Table, typename Index>
concept IsIndexedBy = requires(Table table, Index index) {
  table[index];
};

TEST(Program, TablesRefuseIndicesOfOtherTables) {
  static_assert(IsIndexedBy<decltype(Body::values), ValueIndex>);
  static_assert(!IsIndexedBy<decltype(Body::values), NodeId>);
  static_assert(!IsIndexedBy<decltype(Body::values), size_t>);
  static_assert(IsIndexedBy<decltype(Body::nodes), NodeId>);
  static_assert(!IsIndexedBy<decltype(Body::nodes), ValueIndex>);
  static_assert(IsIndexedBy<decltype(LoweredBody::choices), NodeId>);
  static_assert(!IsIndexedBy<decltype(LoweredBody::choices), BodyId>);
  static_assert(IsIndexedBy<decltype(Storage::blocks), BlockId>);
  static_assert(!IsIndexedBy<decltype(Storage::blocks), TenantId>);
  static_assert(!IsIndexedBy<decltype(Storage::tenants), ValueIndex>);
  static_assert(!IsIndexedBy<FactTable, NodeId>);
  static_assert(IsIndexedBy<decltype(Program::channels), exe::ChannelId>);
  static_assert(!IsIndexedBy<decltype(Program::groups), exe::ChannelId>);
  static_assert(!IsIndexedBy<decltype(Program::constants), exe::ConstantId>);
}

TEST(Program, OrdersBodiesByTheirCalls) {
  const TestProgram p(kCalls);
  EXPECT_EQ(callees_first(p.program), ids<BodyId>({3, 5, 1, 0, 4}));
  EXPECT_EQ(callers_first(p.program), ids<BodyId>({0, 4, 1, 3, 5}));
}

TEST(Program, ForEachBodyAddsUpTheChangesOfReachedBodies) {
  TestProgram p(kCalls);
  EXPECT_EQ(for_each_body(p.program, [](const Body&) { return 2; }), 10);
}

// Requests the callee of the n-th call with `key` times 10 plus n.
std::vector<Request<int>> ask(Body& body, int key) {
  std::vector<Request<int>> requests;
  int number = 0;
  for (Node& node : body.nodes)
    for_each_callee(node, [&](BodyId& c) { requests.push_back({&c, key * 10 + ++number}); });
  return requests;
}

TEST(Program, SpecialiseCopiesABodyForEachKey) {
  TestProgram p(R"(
    body main entry
      call 1
      call 1
    end
    body f function
      call 2
    end
    body g function
    end)");
  std::vector<std::pair<int32_t, int>> visits;
  specialise<int>(p.program, [&](BodyId id, int key) {
    visits.emplace_back(id, key);
    return ask(p.body(id), key);
  });
  // Body f is visited with keys 1 and 2, and therefore g with keys 11 and 21.
  EXPECT_EQ(visits,
            (std::vector<std::pair<int32_t, int>>{{0, 0}, {1, 1}, {3, 2}, {2, 11}, {4, 21}}));
  EXPECT_EQ(p.body(0).nodes[NodeId(1)].call()->callee, 3);
  EXPECT_EQ(p.body(1).nodes[NodeId(0)].call()->callee, 2);
  EXPECT_EQ(p.body(3).nodes[NodeId(0)].call()->callee, 4);
}

TEST(Program, SpecialiseSharesABodyThatAllAskForUnderOneKey) {
  TestProgram p(kCalls);
  int visits = 0;
  specialise<int>(p.program, [&](BodyId id, int) {
    ++visits;
    std::vector<Request<int>> requests;
    for (Node& node : p.body(id).nodes)
      for_each_callee(node, [&](BodyId& c) { requests.push_back({&c, 7}); });
    return requests;
  });
  EXPECT_EQ(visits, 5);
  EXPECT_EQ(p.program.bodies.size(), 6U);
}

TEST(Program, SpecialiseCopiesABodyBeforeAKeyChangesIt) {
  TestProgram p(R"(
    body main entry
      branch 1 1 then 0
    end
    body f function
    end)");
  specialise<int>(p.program, [&](BodyId id, int key) {
    p.body(id).name += std::to_string(key);
    return ask(p.body(id), key);
  });
  EXPECT_EQ(p.body(1).name, "f1");
  EXPECT_EQ(p.body(2).name, "f2");
}

TEST(Program, ContextKnowsTheTargetsOfDevicesThatAreThere) {
  const TestProgram p(kCalls, {}, 2);
  EXPECT_EQ(p.context.target(1).kind(), "test");
  expect_refused(
      {{"device 2", [&] { p.context.target(2); }, "there is no device 2, the program has 2"}});
}

}  // namespace
}  // namespace sluice::compiler
