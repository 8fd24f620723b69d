#include "sluice/compiler/lower/storage.h"

#include <gtest/gtest.h>

#include "sluice/compiler/lower/kernels.h"
#include "sluice/compiler/test_bodies.h"

namespace sluice::compiler {
namespace {

class StorageTest : public testing::Test {
 protected:
  // Assigns storage to the body "main" of these nodes.
  void run(const std::string& nodes, const std::string& others = "") {
    program_ = std::make_unique<TestProgram>("body main entry\n" + nodes + "\nend" + others);
    LoweredBody lowered;
    choose_kernels(body(), *program_->target, lowered);
    choices_ = std::move(lowered.choices);
    storage_ = assign_storage(body(), choices_, *program_->target);
    verify(program_->program, "storage");
    ASSERT_EQ(choices_.size(), body().nodes.size());
  }
  int64_t reuse() { return reuse_dying_operands(body(), choices_, storage_); }
  Body& body() { return program_->body(); }
  const Block& block(int32_t value) { return storage_.block(ValueIndex(value)); }
  const Tenant& tenant(int32_t value) { return storage_.tenant(ValueIndex(value)); }
  bool share(int32_t a, int32_t b) { return &block(a) == &block(b); }
  Block::Location location(int32_t value) { return block(value).location; }

  std::unique_ptr<TestProgram> program_;
  Ids<NodeId, KernelChoice> choices_;
  Storage storage_;
};

TEST_F(StorageTest, AViewSharesTheBytesOfItsSource) {
  run(R"(
    param %0 f32(4)
    kernel Neg in %0 out %1 f32(4)
    view in %1 out %2 f32(2,2)
    kernel Neg in %2 out %3 f32(2,2)
    results %3)");
  EXPECT_TRUE(body().nodes[NodeId(1)].is<Node::View>());
  EXPECT_TRUE(share(1, 2));
  EXPECT_EQ(location(0), Block::Location::kParam);
  EXPECT_EQ(location(1), Block::Location::kFrame);
  EXPECT_EQ(location(3), Block::Location::kResult);
  EXPECT_EQ(tenant(1).begin, 0);
  EXPECT_EQ(tenant(1).end, 2);
}

TEST_F(StorageTest, AViewIsACopyWhereOneOfBothIsWrittenWhileTheOtherLives) {
  run(R"(
    param %0 f32(4) last %3
    view in %0 out %1 f32(2,2)
    copy in %1 as f32(2,2) out %2 f32(2,2)
    kernel AddLhsInplace in %0 %0 out %3 f32(4) tie 0 %0
    kernel Neg in %1 out %4 f32(2,2)
    results %2 %4)");
  EXPECT_TRUE(body().nodes[NodeId(0)].is<Node::Copy>())
      << "the source is written while the view lives";
  run(R"(
    param %0 f32(4)
    view in %0 out %1 f32(4)
    kernel AddLhsInplace in %1 %0 out %2 f32(4) tie 0 %1
    results %2)");
  EXPECT_TRUE(body().nodes[NodeId(0)].is<Node::Copy>()) << "the view is written";
  run(R"(
    param %0 f32(4) last %3
    view in %0 out %1 f32(4)
    kernel Neg in %1 out %2 f32(4)
    kernel AddLhsInplace in %0 %2 out %3 f32(4) tie 0 %0)");
  EXPECT_TRUE(body().nodes[NodeId(0)].is<Node::View>())
      << "the view is dead when the source is written";
}

TEST_F(StorageTest, AnUpdateLiesInTheBytesThatItOverwrites) {
  run(R"(
    variable 0 %0 f32(4)
    param %1 f32(4)
    kernel AddLhsInplace in %0 %1 out %2 f32(4) tie 0 %0
    last 0 %2)");
  EXPECT_TRUE(share(0, 2));
  EXPECT_EQ(location(2), Block::Location::kVariable);
}

TEST_F(StorageTest, AResultThatHasAnotherHomeIsCopied) {
  const auto copies = [&](const std::string& nodes) {
    run(nodes);
    return std::count_if(body().nodes.begin(), body().nodes.end(),
                         [](const Node& n) { return n.is<Node::Copy>(); });
  };
  EXPECT_EQ(copies("param %0 f32(4)\nresults %0"), 1);
  EXPECT_EQ(copies("variable 0 %0 f32(4)\nresults %0"), 1);
  EXPECT_EQ(copies("param %0 f32(4)\nkernel Neg in %0 out %1 f32(4)\nresults %1"), 0);
  EXPECT_EQ(copies("param %0 f32(4)\nkernel Neg in %0 out %1 f32(4)\nresults %1 %1"), 1);
  EXPECT_EQ(copies("param %0 f32(4)\nkernel Neg in %0 out %1 f32(4)\n"
                   "view in %1 out %2 f32(2,2)\nresults %1 %2"),
            1);
  EXPECT_EQ(copies("param %0 f32(4)\nview in %0 out %1 f32(2,2)\nresults %1"), 1);
}

TEST_F(StorageTest, ACarriedValueHasARingOfTwoSlots) {
  run(R"(
    param %0 f32(4)
    loop trips 3 carried 1 1 index it in %0 out %1 f32(4)
    results %1)",
      R"(
    body step loop_body
      index_param ?
      param %0 f32(4)
      kernel Neg in %0 out %1 f32(4)
      results %1
    end)");
  ASSERT_EQ(body().nodes.size(), 3U);
  EXPECT_TRUE(body().nodes[NodeId(0)].is<Node::Copy>()) << "into slot 0";
  const ValueIndex first = body().nodes[NodeId(1)].inputs[0];
  EXPECT_TRUE(share(first, 1));
  EXPECT_EQ(block(1).ring, 2);
  EXPECT_EQ(tenant(first).slot, 0);
  EXPECT_EQ(tenant(1).slot, 1) << "3 trips end in the other slot";
}

TEST_F(StorageTest, AFirstValueIsMadeInItsRingIfTheLoopReadsItLast) {
  const std::string callee = R"(
    body step loop_body
      index_param ?
      param %0 f32(4)
      kernel Neg in %0 out %1 f32(4)
      results %1
    end)";
  run(R"(
    param %0 f32(4)
    kernel Neg in %0 out %1 f32(4)
    kernel Neg in %1 out %2 f32(4)
    loop trips 3 carried 1 1 index it in %1 out %3 f32(4)
    kernel Add in %2 %3 out %4 f32(4)
    results %4)",
      callee);
  EXPECT_EQ(body().nodes.size(), 4U) << "no copy";
  EXPECT_TRUE(share(1, 3));
  EXPECT_EQ(block(1).ring, 2);
  EXPECT_EQ(tenant(1).slot, 0);
  run(R"(
    param %0 f32(4)
    kernel Neg in %0 out %1 f32(4)
    loop trips 3 carried 1 1 index it in %1 out %2 f32(4)
    kernel Add in %1 %2 out %3 f32(4)
    results %3)",
      callee);
  EXPECT_EQ(body().nodes.size(), 4U) << "a copy: %1 is read after the loop";
  EXPECT_FALSE(share(1, 2));
}

TEST_F(StorageTest, ARotationHasOneRing) {
  run(R"(
    param %0 f32(4)
    param %1 f32(4)
    param %2 f32(4)
    loop trips 6 carried 3 rotates 0:2 rotates 1:0 1 index it in %0 %1 %2 out %3 f32(4) %4 f32(4) %5 f32(4)
    results %3 %4 %5)",
      R"(
    body step loop_body
      index_param ?
      param %0 f32(4)
      param %1 f32(4)
      param %2 f32(4)
      kernel Neg in %1 out %3 f32(4)
      results %- %- %3
    end)");
  const Node& loop = body().nodes[NodeId(3)];
  for (size_t k = 0; k < 3; ++k) {
    EXPECT_TRUE(share(loop.inputs[0], loop.inputs[k])) << k;
    EXPECT_TRUE(share(loop.inputs[0], loop.outputs[k])) << k;
  }
  EXPECT_EQ(block(3).ring, 4);
  const auto slots = [&](const std::vector<ValueIndex>& values) {
    std::vector<int32_t> found;
    for (const ValueIndex v : values) found.push_back(tenant(v).slot);
    return found;
  };
  EXPECT_EQ(slots(loop.inputs), (std::vector<int32_t>{1, 0, 2})) << "1 is the oldest";
  EXPECT_EQ(slots(loop.outputs), (std::vector<int32_t>{3, 2, 0})) << "6 slots further";
}

TEST_F(StorageTest, ValuesThatExchangePlacesHaveNoFreeSlot) {
  const std::string swap = R"(
    body step loop_body
      index_param ?
      param %0 f32(4)
      param %1 f32(4)
      results %- %-
    end)";
  run(R"(
    param %0 f32(4)
    param %1 f32(4)
    loop trips 3 carried 2 rotates 0:1 rotates 1:0 1 index it in %0 %1 out %2 f32(4) %3 f32(4)
    results %2 %3)",
      swap);
  EXPECT_EQ(block(2).ring, 2);
  EXPECT_EQ(tenant(body().nodes[NodeId(2)].inputs[0]).slot, 1);
  EXPECT_EQ(tenant(2).slot, 0);
  EXPECT_EQ(tenant(3).slot, 1);
  run(R"(
    param %0 f32(4)
    param %1 f32(4)
    loop trips 3 carried 2 rotates 0:0 rotates 1:1 1 index it in %0 %1 out %2 f32(4) %3 f32(4)
    results %2 %3)",
      swap);
  EXPECT_EQ(block(2).ring, 0) << "a value that stays is no ring";
  EXPECT_FALSE(share(2, 3));
}

TEST_F(StorageTest, AnOutputTakesTheBytesOfAnOperandThatDies) {
  run(R"(
    param %0 f32(4)
    kernel Neg in %0 out %1 f32(4)
    kernel Neg in %1 out %2 f32(4)
    results %2)");
  EXPECT_EQ(reuse(), 1);
  EXPECT_TRUE(share(1, 2));
  EXPECT_FALSE(share(0, 1)) << "a parameter is the caller's";
}

TEST_F(StorageTest, AnOperandThatIsReadLaterOrByAViewKeepsItsBytes) {
  run(R"(
    param %0 f32(4)
    kernel Neg in %0 out %1 f32(4)
    view in %1 out %2 f32(2,2)
    kernel Neg in %1 out %3 f32(4)
    kernel Neg in %2 out %4 f32(2,2)
    results %3 %4)");
  EXPECT_EQ(reuse(), 1);
  EXPECT_FALSE(share(1, 3));
  EXPECT_TRUE(share(1, 4));
}

// The kernel lets operand 0 coincide with the result, but not operand 1, which has the same bytes.
TEST_F(StorageTest, AllOperandsInTheBytesMustBeAllowedToCoincide) {
  run(R"(
    param %0 f32(4)
    kernel Neg in %0 out %1 f32(4)
    kernel Add in %1 %1 out %2 f32(4)
    results %2)");
  choices_[NodeId(1)].may_coincide = {{0, 0}};
  EXPECT_EQ(reuse(), 0);
  choices_[NodeId(1)].may_coincide = {{0, 0}, {1, 0}};
  EXPECT_EQ(reuse(), 1);
}

}  // namespace
}  // namespace sluice::compiler
