#include "sluice/compiler/passes/fusion/share_work.h"

#include <gtest/gtest.h>

#include "sluice/compiler/test_bodies.h"

namespace sluice::compiler {
namespace {

class ShareWork : public testing::Test {
 protected:
  int64_t run(const std::string& nodes) {
    program_ = std::make_unique<TestProgram>("body main entry\n" + nodes + "\nend");
    return share_work(program_->body(), target_);
  }
  // Expects that the pass changes nothing.
  void expect_apart(const std::string& nodes) {
    EXPECT_EQ(run(nodes), 0);
    program_->expect("body main entry\n" + nodes + "\nend");
  }

  ShareWork() { target_.fused = {"GeluGate+Mul+GeluSlope"}; }
  TestTarget target_;
  std::unique_ptr<TestProgram> program_;
};

TEST_F(ShareWork, TheForwardOpMakesTheDerivativeAndTheGradientIsAProduct) {
  EXPECT_EQ(run(R"(
    param %0 f32(4)
    param %1 f32(4)
    kernel Neg in %0 out %2 f32(4)
    kernel Gelu in %2 out %3 f32(4) name "y" 0
    kernel GeluGrad in %2 %1 out %4 f32(4)
    results %3 %4)"),
            1);
  program_->expect(R"(body main entry
    param %0 f32(4)
    param %1 f32(4)
    kernel Neg in %0 out %2 f32(4)
    kernel GeluGate in %2 out %5 f32(4) name "gelu_gate of y" 0
    kernel Mul in %2 %5 out %3 f32(4) name "y" 0
    kernel GeluSlope in %2 %5 out %6 f32(4) name "gelu_slope of y" 0
    kernel Mul in %1 %6 out %4 f32(4)
    results %3 %4
    end)");
}

TEST_F(ShareWork, TheDerivativeIsAnOpOfTheForwardOne) {
  const std::string nodes = R"(
    param %0 f32(4)
    param %1 f32(4)
    kernel Neg in %0 out %2 f32(4)
    kernel Gelu in %2 out %3 f32(4)
    kernel GeluGrad in %2 %1 out %4 f32(4)
    results %3 %4)";
  program_ = std::make_unique<TestProgram>("body main entry\n" + nodes + "\nend");
  Body& body = program_->body();
  body.nodes[NodeId(1)].provenance = Provenance{.module_path = "fc1", .op = "gelu"};
  body.nodes[NodeId(2)].provenance =
      Provenance{.role = OpRole::kGradient, .module_path = "fc1", .op = "gelu"};
  EXPECT_EQ(share_work(body, target_), 1);
  EXPECT_EQ(body.nodes[NodeId(2)].provenance, (Provenance{.module_path = "fc1", .op = "gelu"}));
  EXPECT_EQ(body.nodes[NodeId(3)].provenance,
            (Provenance{.module_path = "fc1", .op = "gelu_slope"}));
  EXPECT_EQ(body.nodes[NodeId(4)].provenance->role, OpRole::kGradient);
}

TEST_F(ShareWork, AnOperandThatSomethingElseReadsIsKeptAnyway) {
  expect_apart(R"(
    param %0 f32(4)
    param %1 f32(4)
    kernel Neg in %0 out %2 f32(4)
    kernel Gelu in %2 out %3 f32(4)
    kernel GeluGrad in %2 %1 out %4 f32(4)
    results %2 %3 %4)");
  expect_apart(R"(
    param %0 f32(4)
    param %1 f32(4)
    kernel Neg in %0 out %2 f32(4)
    kernel Gelu in %2 out %3 f32(4)
    kernel GeluGrad in %2 %1 out %4 f32(4)
    kernel Relu in %2 out %5 f32(4)
    results %3 %4 %5)");
  expect_apart(R"(
    param %2 f32(4)
    param %1 f32(4)
    kernel Gelu in %2 out %3 f32(4)
    kernel GeluGrad in %2 %1 out %4 f32(4)
    results %3 %4)");
}

TEST_F(ShareWork, AnOverwrittenOperandAndAnotherShapeAreLeftAlone) {
  expect_apart(R"(
    param %0 f32(4)
    kernel Neg in %0 out %2 f32(4)
    kernel Gelu in %2 out %3 f32(4)
    kernel GeluGrad in %2 %0 out %4 f32(4)
    kernel AddLhsInplace in %0 %3 out %5 f32(4) tie 0 %2
    results %4 %5)");
  expect_apart(R"(
    param %0 f32(4)
    param %1 f32(2,2)
    kernel Neg in %0 out %2 f32(4)
    kernel Gelu in %2 out %3 f32(4)
    kernel GeluGrad in %2 as f32(2,2) %1 out %4 f32(2,2)
    results %3 %4)");
}

TEST_F(ShareWork, WithoutAGradientOrAKernelNothingChanges) {
  expect_apart(R"(
    param %0 f32(4)
    kernel Neg in %0 out %1 f32(4)
    kernel Gelu in %1 out %2 f32(4)
    results %2)");
  target_.fused.clear();
  expect_apart(R"(
    param %0 f32(4)
    param %1 f32(4)
    kernel Neg in %0 out %2 f32(4)
    kernel Gelu in %2 out %3 f32(4)
    kernel GeluGrad in %2 %1 out %4 f32(4)
    results %3 %4)");
}

TEST_F(ShareWork, SeveralGradientsShareOneDerivative) {
  EXPECT_EQ(run(R"(
    param %0 f32(4)
    param %1 f32(4)
    kernel Neg in %0 out %2 f32(4)
    kernel Gelu in %2 out %3 f32(4)
    kernel GeluGrad in %2 %1 out %4 f32(4)
    kernel GeluGrad in %2 %3 out %5 f32(4)
    results %4 %5)"),
            1);
  verify(program_->program, "share-work");
  const Body& body = program_->body();
  ASSERT_EQ(body.nodes.size(), 6U);
  EXPECT_EQ(body.nodes[NodeId(4)].inputs, ids<ValueIndex>({1, 7}));
  EXPECT_EQ(body.nodes[NodeId(5)].inputs, ids<ValueIndex>({3, 7}));
}

// A gradient before the activation would read a derivative that is not computed yet.
TEST_F(ShareWork, AGradientBeforeTheActivationStays) {
  expect_apart(R"(
    param %0 f32(4)
    param %1 f32(4)
    kernel Neg in %0 out %2 f32(4)
    kernel GeluGrad in %2 %1 out %4 f32(4)
    kernel Gelu in %2 out %3 f32(4)
    results %3 %4)");
}

}  // namespace
}  // namespace sluice::compiler
