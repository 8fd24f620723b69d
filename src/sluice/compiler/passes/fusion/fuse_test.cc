#include "sluice/compiler/passes/fusion/fuse.h"

#include <gtest/gtest.h>

#include "sluice/compiler/test_bodies.h"

namespace sluice::compiler {
namespace {

class Fuse : public testing::Test {
 protected:
  // Returns the number of joined ops in the body "main" of these nodes.
  int64_t run(const std::string& nodes) {
    program_ = std::make_unique<TestProgram>("body main entry\n" + nodes + "\nend");
    *program_->target = target_;
    return fuse(program_->body(), target_, program_->program.fusions);
  }
  void expect(const std::string& nodes) { program_->expect("body main entry\n" + nodes + "\nend"); }
  const FusionReport& report() const { return program_->program.fusions; }

  TestTarget target_;
  std::unique_ptr<TestProgram> program_;
};

TEST_F(Fuse, AnOpJoinsTheMakerOfItsInput) {
  target_.fused = {"MatMul+Add"};
  EXPECT_EQ(run(R"(
    param %0 f32(2,3)
    param %1 f32(3,2)
    param %2 f32(2)
    kernel MatMul in %0 %1 out %3 f32(2,2)
    kernel Add in %3 %2 out %4 f32(2,2)
    results %4)"),
            1);
  expect(R"(
    param %0 f32(2,3)
    param %1 f32(3,2)
    param %2 f32(2)
    kernel MatMul in %0 %1 %2 out %4 f32(2,2)
      stage MatMul f32(2,2) to -1 from 0 1
      stage Add f32(2,2) to 3 from -1 2
    results %4)");
  EXPECT_EQ(report().made, (std::map<std::string, int64_t>{{"MatMul+Add", 1}}));
}

TEST_F(Fuse, AResultThatOthersReadIsStored) {
  target_.fused = {"Neg+Relu"};
  run(R"(
    param %0 f32(4)
    kernel Neg in %0 out %1 f32(4)
    kernel Relu in %1 out %2 f32(4)
    copy in %1 out %3 f32(4)
    results %2 %3)");
  expect(R"(
    param %0 f32(4)
    kernel Neg in %0 out %1 f32(4) %2 f32(4)
      stage Neg f32(4) to 1 from 0
      stage Relu f32(4) to 2 from -1
    copy in %1 out %3 f32(4)
    results %2 %3)");
}

TEST_F(Fuse, WhatNoKernelRunsStaysApart) {
  const char* const nodes = R"(
    param %0 f32(4)
    kernel Neg in %0 out %1 f32(4)
    kernel Relu in %1 out %2 f32(4)
    results %2)";
  EXPECT_EQ(run(nodes), 0);
  expect(nodes);
  EXPECT_EQ(report().refused.begin()->first, "Relu after Neg: no kernel runs both");
}

// Neg cannot move to Add: the copy between them overwrites %0, which Neg reads.
TEST_F(Fuse, NothingMovesPastAWriteToWhatItReads) {
  target_.fused = {"Neg+Add"};
  const char* const nodes = R"(
    param %0 f32(4) last %2
    param %1 f32(4)
    kernel Neg in %0 out %3 f32(4)
    copy in %1 out %2 f32(4) tie 0 %0
    kernel Add in %3 %2 out %4 f32(4)
    results %4)";
  EXPECT_EQ(run(nodes), 0);
  expect(nodes);
  EXPECT_EQ(report().refused.begin()->first,
            "Add after Neg: an operand is overwritten before the fused kernel can run");
}

// The joint node follows the copy, which is the last reader of the old weight.
TEST_F(Fuse, AnUpdateJoinsTheMakerOfItsGradientBehindAllReadersOfTheOldWeight) {
  target_.fused = {"Neg+AddLhsInplace"};
  EXPECT_EQ(run(R"(
    variable 0 %0 f32(4)
    param %1 f32(4)
    kernel Neg in %1 out %2 f32(4)
    copy in %0 out %3 f32(4)
    kernel AddLhsInplace in %0 %2 out %4 f32(4) tie 0 %0
    results %3
    last 0 %4)"),
            1);
  expect(R"(
    variable 0 %0 f32(4)
    param %1 f32(4)
    copy in %0 out %3 f32(4)
    kernel Neg in %1 %0 out %4 f32(4) tie 0 %0
      stage Neg f32(4) to -1 from 0
      stage AddLhsInplace f32(4) to 2 from 1 -1
    results %3
    last 0 %4)");
}

TEST_F(Fuse, AnUpdateOfAResultThatOthersReadStaysApart) {
  target_.fused = {"Neg+AddLhsInplace"};
  const char* const nodes = R"(
    param %0 f32(4)
    kernel Neg in %0 out %1 f32(4)
    copy in %1 out %2 f32(4)
    kernel AddLhsInplace in %1 %0 out %3 f32(4) tie 0 %1
    results %2 %3)";
  EXPECT_EQ(run(nodes), 0);
  expect(nodes);
}

TEST_F(Fuse, AReaderThatSeesAnotherShapeStaysApart) {
  target_.fused = {"Neg+Relu"};
  EXPECT_EQ(run(R"(
    param %0 f32(4)
    kernel Neg in %0 out %1 f32(4)
    kernel Relu in %1 as f32(2,2) out %2 f32(2,2)
    results %2)"),
            0);
  EXPECT_EQ(report().refused.begin()->first,
            "Relu after Neg: it reads the result in another shape");
}

TEST_F(Fuse, PrintsViewsAndOpsOfSeveralResultsStayApart) {
  target_.fused = {"Neg+PrintTensor", "Neg+Split"};
  EXPECT_EQ(run(R"(
    param %0 f32(4)
    kernel Neg in %0 out %1 f32(4)
    kernel PrintTensor prints in %1 out %2 f32(4)
    kernel Split in %1 out %3 f32(2) %4 f32(2)
    results %2 %3 %4)"),
            0);
  EXPECT_TRUE(report().made.empty());
}

TEST_F(Fuse, AKernelHasAtMostEightStages) {
  std::string name = "Neg";
  std::string nodes = "param %0 f32(4)\nkernel Neg in %0 out %1 f32(4)\n";
  for (int n = 2; n <= 10; ++n) {
    target_.fused.insert(name += "+Neg");
    nodes += fmt::format("kernel Neg in %{} out %{} f32(4)\n", n - 1, n);
  }
  EXPECT_EQ(run(nodes + "results %10"), 8);
  EXPECT_EQ(program_->body().nodes.size(), 2U);
  EXPECT_EQ(program_->body().nodes[NodeId(0)].as<Node::Kernel>()->stages.size(), 8U);
}

// The body may contain dead code, because the pass that removes it is optional.
TEST_F(Fuse, AnOpWhoseResultNothingReadsStaysApart) {
  target_.fused = {"Neg+Relu"};
  const char* const nodes = R"(
    param %0 f32(4)
    kernel Neg in %0 out %1 f32(4)
    kernel Relu in %1 out %2 f32(4)
    results %0)";
  EXPECT_EQ(run(nodes), 0);
  expect(nodes);
}

}  // namespace
}  // namespace sluice::compiler
