#include "sluice/compiler/passes/transfers.h"

#include <gtest/gtest.h>

#include "sluice/base/test_refusals.h"
#include "sluice/compiler/test_bodies.h"

namespace sluice::compiler {
namespace {

class Transfers : public testing::Test {
 protected:
  // Returns the nodes after the pass: "load2" is the issue with token 2, "wait2" its wait, "Neg" a
  // kernel.
  std::vector<std::string> run(const std::string& nodes, int io_queues = 1,
                               const std::string& others = "") {
    program_ = std::make_unique<TestProgram>("body main entry\n" + nodes + "\nend" + others);
    const FactTable facts(program_->program);
    moved_ = schedule_transfers(program_->body(), facts, io_queues);
    verify(program_->program, "transfers");
    std::vector<std::string> order;
    for (const Node& node : program_->body().nodes) order.push_back(name(node));
    return order;
  }
  static std::string name(const Node& node) {
    if (const auto* w = node.as<Node::Wait>()) return fmt::format("wait{}", w->token);
    const auto* t = node.as<Node::Transfer>();
    if (t == nullptr) return has_callees(node) ? "call" : name_of(node);
    const bool load = t->effect.kind == Effect::Action::kRemoteLoad ||
                      t->effect.kind == Effect::Action::kStreamRead;
    return fmt::format("{}{}", load ? "load" : "store", t->token);
  }
  int32_t queue(int32_t node) const {
    return program_->body().nodes[NodeId(node)].as<Node::Transfer>()->queue;
  }

  using Order = std::vector<std::string>;
  std::unique_ptr<TestProgram> program_;
  int64_t moved_ = 0;
};

TEST_F(Transfers, WithoutAnIoModeNothingMoves) {
  EXPECT_EQ(run(R"(
    transfer - remote_load 1 compute at 0 token 0 out %0 f32(4)
    kernel Neg in %0 out %1 f32(4))"),
            (Order{"load0", "Neg"}));
  EXPECT_EQ(moved_, 0);
}

TEST_F(Transfers, IoWaitsRightBehindTheIssue) {
  EXPECT_EQ(run(R"(
    param %5 f32(4)
    kernel Neg in %5 out %6 f32(4)
    transfer - remote_load 1 io at 0 token 0 out %0 f32(4)
    kernel Relu in %6 out %7 f32(4)
    kernel Neg in %0 out %1 f32(4))"),
            (Order{"Neg", "load0", "wait0", "Relu", "Neg"}));
  EXPECT_EQ(queue(1), 1);
  EXPECT_EQ(moved_, 1);
}

// Two segments: the loads of the second are issued at the start of the first, and its store ends
// after the second.
constexpr const char* kSegments = R"(
    transfer - remote_load 1 io_overlapped at 0 token 0 out %0 f32(4)
    kernel Neg in %0 out %1 f32(4)
    transfer - remote_store 1 io_overlapped at 0 token 1 in %1
    transfer - remote_load 1 io_overlapped at 1 token 2 out %2 f32(4)
    kernel Relu in %2 out %3 f32(4)
    transfer - remote_store 1 io_overlapped at 1 token 3 in %3
    transfer - remote_load 1 io_overlapped at 2 token 4 out %4 f32(4)
    kernel Abs in %4 out %5 f32(4)
    results %5)";

TEST_F(Transfers, OverlappedTransfersRunDuringNeighbouringSegments) {
  EXPECT_EQ(run(kSegments), (Order{"load0", "load2", "wait0", "Neg", "store1", "load4", "wait2",
                                   "Relu", "store3", "wait1", "wait4", "Abs", "wait3"}));
}

TEST_F(Transfers, WithThreeQueuesLoadsStoresAndPrefetchesHaveOneEach) {
  run(kSegments, 3);
  std::map<int32_t, int32_t> queues;  // Keyed by token.
  for (const Node& node : program_->body().nodes) {
    if (const auto* t = node.as<Node::Transfer>()) queues[t->token] = t->queue;
  }
  EXPECT_EQ(queues, (std::map<int32_t, int32_t>{{0, 1}, {1, 2}, {2, 3}, {3, 2}, {4, 3}}));
}

// Entry 0 is stored, then loaded. One queue keeps the order, so the load does not wait for the
// store.
constexpr const char* kSameEntry = R"(
    param %9 f32(4)
    kernel Neg in %9 out %0 f32(4)
    transfer - remote_store 1 io_overlapped at 0 token 0 in %0
    transfer - remote_load 1 io_overlapped at 0 token 1 out %1 f32(4)
    kernel Relu in %1 out %2 f32(4)
    results %2)";

TEST_F(Transfers, ALoadStaysBehindTheStoreOfItsEntry) {
  EXPECT_EQ(run(kSameEntry), (Order{"Neg", "store0", "load1", "wait1", "Relu", "wait0"}));
  // The load is on another queue, so the store must end first.
  EXPECT_EQ(run(kSameEntry, 3), (Order{"Neg", "store0", "wait0", "load1", "wait1", "Relu"}));
}

TEST_F(Transfers, AnEntryThatDataDecideMayBeAny) {
  EXPECT_EQ(run(R"(
    param %9 f32(4)
    param %8 i32()
    kernel Neg in %9 out %0 f32(4)
    transfer - remote_store 1 io_overlapped at -1 token 0 in %0 %8
    transfer - remote_load 1 io_overlapped at 7 token 1 out %1 f32(4)
    results %1)",
                3),
            (Order{"Neg", "store0", "wait0", "load1", "wait1"}));
}

TEST_F(Transfers, BytesAreOverwrittenAfterTheStoreHasEnded) {
  EXPECT_EQ(run(R"(
    param %9 f32(4)
    kernel Neg in %9 out %0 f32(4)
    view in %0 out %1 f32(2,2)
    transfer - remote_store 1 io_overlapped at 0 token 0 in %1
    kernel Relu in %9 out %3 f32(4)
    kernel AddLhsInplace in %0 %9 out %2 f32(4) tie 0 %0
    results %2 %3)"),
            (Order{"Neg", "op", "store0", "Relu", "wait0", "AddLhsInplace"}));
}

TEST_F(Transfers, NothingIsInFlightAtAConditionalOrAtTheEnd) {
  const std::string f = "\nbody f function\nend";
  EXPECT_EQ(run(R"(
    param %9 f32(4)
    param %8 bool()
    transfer - remote_store 1 io_overlapped at 0 token 0 in %9
    branch 1 1 then 0 in %8
    transfer - remote_load 2 io_overlapped at 0 token 1 out %1 f32(4))",
                1, f),
            (Order{"store0", "wait0", "call", "load1", "wait1"}));
}

TEST_F(Transfers, ACallThatUsesTheBufferIsNotCrossed) {
  const auto with = [&](const std::string& callee) {
    return run(R"(
    param %9 f32(4)
    kernel Neg in %9 out %3 f32(4)
    call 1 in %3
    transfer - remote_load 1 io_overlapped at 0 token 0 out %1 f32(4)
    results %1)",
               1, "\nbody f function\nparam %0 f32(4)\n" + callee + "\nend");
  };
  EXPECT_EQ(with("transfer - remote_store 1 io at 5 in %0"),
            (Order{"Neg", "call", "load0", "wait0"}));
  EXPECT_EQ(with("transfer - remote_store 2 io at 5 in %0"),
            (Order{"load0", "Neg", "call", "wait0"}));
}

// The load overwrites %0, so it follows Neg, which reads %0.
TEST_F(Transfers, ALoadIntoBytesStaysBehindTheirReaders) {
  EXPECT_EQ(run(R"(
    param %0 f32(4) last %2
    param %8 f32(4)
    kernel Relu in %8 out %4 f32(4)
    kernel Neg in %0 out %1 f32(4)
    kernel Abs in %8 out %5 f32(4)
    transfer - remote_load 1 io_overlapped at 0 token 0 out %2 f32(4) tie 0 %0
    results %1 %4 %5)"),
            (Order{"Relu", "Neg", "load0", "Abs", "wait0"}));
}

TEST_F(Transfers, RefusesAnIoModeWithoutAQueue) {
  expect_refused(
      {{"no queue",
        [&] { run("transfer RemoteLoad remote_load 1 io at 0 out %0 f32() where \"l\"", 0); },
        "io queues: RemoteLoad in graph main requires at least 1, got 0"}});
}

}  // namespace
}  // namespace sluice::compiler
