#include "sluice/compiler/passes/fusion/conversions.h"

#include <gtest/gtest.h>

#include "sluice/compiler/test_bodies.h"

namespace sluice::compiler {
namespace {

class Conversions : public testing::Test {
 protected:
  int64_t run(const std::string& nodes) {
    program_ = std::make_unique<TestProgram>("body main entry\n" + nodes + "\nend" + kCallee);
    program_->target->panels = true;
    return convert_layouts(program_->body(), program_->program, *program_->target);
  }
  void expect(const std::string& nodes) {
    program_->expect("body main entry\n" + nodes + "\nend" + kCallee);
  }
  // Body 1 takes a row-major argument.
  static constexpr const char* kCallee = R"(
    body f function
      param %0 f32(64,64)
      results %0
    end)";
  std::unique_ptr<TestProgram> program_;
};

TEST_F(Conversions, OneCopyServesAllReadersThatNeedRows) {
  EXPECT_EQ(run(R"(
    variable 0 %0 f32(64,64) name "w" 0 layout panels32
    kernel Softmax in %0 out %1 f32(64,64)
    call 1 in %0 out %2 f32(64,64)
    results %1 %2)"),
            1);
  expect(R"(
    variable 0 %0 f32(64,64) name "w" 0 layout panels32
    copy in %0 out %3 f32(64,64) name "w'row" 0
    kernel Softmax in %3 out %1 f32(64,64)
    call 1 in %3 out %2 f32(64,64)
    results %1 %2)");
}

TEST_F(Conversions, ResultsAreRows) {
  EXPECT_EQ(run(R"(
    variable 0 %0 f32(64,64) layout panels32
    results %0)"),
            1);
  EXPECT_EQ(program_->body().value(program_->body().results[0]).layout, Layout{});
}

TEST_F(Conversions, ElementwiseOpsPassPanelsOn) {
  EXPECT_EQ(run(R"(
    variable 0 %0 f32(64,64) layout panels32
    variable 1 %1 f32(64,64) layout panels32
    kernel Neg in %0 out %2 f32(64,64)
    kernel AddLhsInplace in %1 %2 out %3 f32(64,64) tie 0 %1
    last 1 %3)"),
            0);
  EXPECT_EQ(program_->body().value(ValueIndex(2)).layout, parse_layout("panels32"));
  EXPECT_EQ(program_->body().value(ValueIndex(3)).layout, parse_layout("panels32"));
}

TEST_F(Conversions, AnUpdateOfRowsConvertsWhatItReads) {
  EXPECT_EQ(run(R"(
    variable 0 %0 f32(64,64)
    variable 1 %1 f32(64,64) layout panels32
    kernel AddLhsInplace in %0 %1 out %2 f32(64,64) tie 0 %0
    last 0 %2)"),
            1);
  EXPECT_EQ(program_->body().nodes[NodeId(1)].inputs, ids<ValueIndex>({0, 3}));
}

TEST_F(Conversions, AnAliasOfAnotherShapeIsReadInRows) {
  EXPECT_EQ(run(R"(
    variable 0 %0 f32(64,64) layout panels32
    kernel Neg in %0 as f32(4096) out %1 f32(4096)
    results %1)"),
            1);
  EXPECT_EQ(program_->body().nodes[NodeId(1)].inputs[0], 2);
  EXPECT_EQ(program_->body().nodes[NodeId(1)].in_specs[0].shape, Shape({4096}));
}

TEST_F(Conversions, AMessageSharesTheRowsOfAKernel) {
  EXPECT_EQ(run(R"(
    variable 0 %0 f32(64,64) name "w" 3 layout panels32
    kernel Softmax in %0 out %1 f32(64,64)
    send 0 message 0 in %0
    results %1)"),
            1);
  const Body& body = program_->body();
  EXPECT_EQ(body.nodes[NodeId(1)].inputs, body.nodes[NodeId(2)].inputs);
  EXPECT_EQ(body.value(body.nodes[NodeId(2)].inputs[0]).layout, Layout{});
}

// The pass "project" turns a view that is sent into such a copy.
TEST_F(Conversions, ACopyThatChangesTheShapeTakesRows) {
  EXPECT_EQ(run(R"(
    variable 0 %0 f32(64,64) name "w" 0 layout panels32
    copy in %0 out %1 f32(32,128)
    send 0 message 0 in %1)"),
            1);
  expect(R"(
    variable 0 %0 f32(64,64) name "w" 0 layout panels32
    copy in %0 out %2 f32(64,64) name "w'row" 0
    copy in %2 out %1 f32(32,128)
    send 0 message 0 in %1)");
}

TEST_F(Conversions, ACollectiveThatUpdatesPanelsWorksOnRowsBesideThem) {
  run(R"(
    variable 0 %0 f32(64,64) name "w" 0 layout panels32
    collective ReplicatedAllReduceInplace group 0 in %0 out %1 f32(64,64) name "w" 1 tie 0 %0
    last 0 %1)");
  expect(R"(
    variable 0 %0 f32(64,64) name "w" 0 layout panels32
    copy in %0 out %3 f32(64,64) name "w'row" 0
    collective ReplicatedAllReduceInplace group 0 in %3 out %2 f32(64,64) name "w'row" 1
    copy in %2 out %1 f32(64,64) name "w" 1 layout panels32 tie 0 %0
    last 0 %1)");
}

TEST_F(Conversions, RowsOnlyNeedNoCopies) {
  const char* const nodes = R"(
    variable 0 %0 f32(64,64)
    kernel Softmax in %0 out %1 f32(64,64)
    call 1 in %1 out %2 f32(64,64)
    results %2)";
  EXPECT_EQ(run(nodes), 0);
  expect(nodes);
}

}  // namespace
}  // namespace sluice::compiler
