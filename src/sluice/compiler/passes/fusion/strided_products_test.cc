#include "sluice/compiler/passes/fusion/strided_products.h"

#include <gtest/gtest.h>

#include "sluice/compiler/test_bodies.h"

namespace sluice::compiler {
namespace {

// The options of attention, with the addresses that the pass sets.
std::string attention(const std::string& sizes = "[]", const std::string& rows = "[]",
                      const std::string& heads_last = "false") {
  return "attrs causal=true scale=0.5 window=0 offset=0 dropout=0.0 mask=false seed=false "
         "position=false sizes=" +
         sizes + " rows=" + rows + " heads_last=" + heads_last;
}

class StridedProducts : public testing::Test {
 protected:
  int64_t run(const std::string& nodes) {
    program_ = std::make_unique<TestProgram>("body main entry\n" + nodes + "\nend");
    const int64_t changes = strided_products(program_->body(), target_);
    verify(program_->program, "strides");
    return changes;
  }
  // Expects that the pass changes nothing.
  void expect_apart(const std::string& nodes) {
    EXPECT_EQ(run(nodes), 0);
    program_->expect("body main entry\n" + nodes + "\nend");
  }

  TestTarget target_;
  std::unique_ptr<TestProgram> program_;
};

// The heads of a projection (batch, rows, q k v, heads, size), and of values that lie in heads.
TEST_F(StridedProducts, AttentionReadsAndWritesHeadsInPlace) {
  EXPECT_EQ(run(R"(
    param %0 f32(10,36)
    param %1 f32(2,3,5,4)
    kernel Split in %0 out %2 f32(10,12) %3 f32(10,12) %4 f32(10,12)
      attrs sizes=[12,12,12] axis=1
    view in %2 out %5 f32(2,5,3,4)
    view in %4 out %6 f32(2,5,3,4)
    kernel Transpose in %5 out %7 f32(2,3,5,4)
      attrs permutation=[0,2,1,3]
    kernel Transpose in %6 out %8 f32(2,3,5,4)
      attrs permutation=[0,2,1,3]
    kernel Attention in %7 %8 %1 out %9 f32(2,3,5,4) %10 f32(2,3,5) %11 f32(2,3,5)
      )" + attention() +
                R"(
    kernel Transpose in %9 out %12 f32(2,5,3,4)
      attrs permutation=[0,2,1,3]
    view in %12 out %13 f32(10,12)
    results %13)"),
            1);
  program_->expect(R"(body main entry
    param %0 f32(10,36)
    param %1 f32(2,3,5,4)
    kernel Attention in %0 %0 %1 out %12 f32(2,5,3,4) %10 f32(2,3,5) %11 f32(2,3,5)
      )" + attention("[2,3,3,5,5,4,4]", "[0,180,4,36,24,180,4,36,0,60,20,4]", "true") +
                   R"(
    view in %12 out %13 f32(10,12)
    results %13
    end)");
}

// Results that are not all transposed stay in heads; so does an operand whose elements are apart.
TEST_F(StridedProducts, AttentionKeepsOtherOperandsAndResults) {
  expect_apart(R"(
    param %0 f32(2,3,5,4)
    param %1 f32(2,3,4,5)
    param %2 f32(2,3,5)
    kernel Transpose in %1 out %3 f32(2,3,5,4)
      attrs permutation=[0,1,3,2]
    kernel AttentionGrad in %0 %3 %0 %0 %2 %2 out %4 f32(2,3,5,4) %5 f32(2,3,5,4) %6 f32(2,3,5,4)
      )" + attention() +
               R"(
    kernel Transpose in %4 out %7 f32(2,5,3,4)
      attrs permutation=[0,2,1,3]
    results %7 %5 %6)");
}

TEST_F(StridedProducts, ATransposedMatrixIsAFlag) {
  EXPECT_EQ(run(R"(
    param %0 f32(4,3)
    param %1 f32(5,3)
    kernel Transpose in %1 out %2 f32(3,5)
      attrs permutation=[1,0]
    kernel MatMul in %0 %2 out %3 f32(4,5)
    results %3)"),
            1);
  program_->expect(R"(body main entry
    param %0 f32(4,3)
    param %1 f32(5,3)
    kernel MatMul in %0 %1 out %3 f32(4,5)
      attrs lhs_transposed=false rhs_transposed=true
    results %3
    end)");
}

// Attention: heads are split from one projection and merged again.
TEST_F(StridedProducts, HeadsAreReadAndWrittenInPlace) {
  EXPECT_EQ(run(R"(
    param %0 f32(10,36)
    kernel Split in %0 out %1 f32(10,12) %2 f32(10,12) %3 f32(10,12)
      attrs sizes=[12,12,12] axis=1
    view in %1 out %4 f32(2,5,3,4)
    view in %2 out %5 f32(2,5,3,4)
    view in %3 out %6 f32(2,5,3,4)
    kernel Transpose in %4 out %7 f32(2,3,5,4)
      attrs permutation=[0,2,1,3]
    kernel Transpose in %5 out %8 f32(2,3,4,5)
      attrs permutation=[0,2,3,1]
    kernel Transpose in %6 out %9 f32(2,3,5,4)
      attrs permutation=[0,2,1,3]
    kernel MatMul in %7 %8 out %10 f32(2,3,5,5)
    kernel Softmax in %10 out %11 f32(2,3,5,5)
    kernel MatMul in %11 %9 out %12 f32(2,3,5,4)
    kernel Transpose in %12 out %13 f32(2,5,3,4)
      attrs permutation=[0,2,1,3]
    view in %13 out %14 f32(10,12)
    results %14)"),
            2);
  const Body& body = program_->body();
  ASSERT_EQ(body.nodes.size(), 4u) << "product, softmax, product, view";
  const Node* const products[] = {&body.nodes[NodeId(0)], &body.nodes[NodeId(2)]};
  EXPECT_EQ(products[0]->inputs, ids<ValueIndex>({0, 0}));
  EXPECT_EQ(to_string(products[0]->as<Node::Kernel>()->attrs),
            "batch=[2,3] m=5 n=5 k=4 lhs=[0,180,4,36,1] rhs=[12,180,4,1,36] "
            "out=[0,75,25,5,1] shape=[2,3,5,5]");
  EXPECT_EQ(products[1]->inputs, ids<ValueIndex>({11, 0}));
  EXPECT_EQ(products[1]->outputs, ids<ValueIndex>({13}));
  EXPECT_EQ(to_string(products[1]->as<Node::Kernel>()->attrs),
            "batch=[2,3] m=5 n=4 k=5 lhs=[0,75,25,5,1] rhs=[24,180,4,36,1] "
            "out=[0,60,4,12,1] shape=[2,5,3,4]");
}

TEST_F(StridedProducts, AnOperandThatOthersReadIsMadeAnyway) {
  expect_apart(R"(
    param %0 f32(4,3)
    param %1 f32(5,3)
    kernel Transpose in %1 out %2 f32(3,5)
      attrs permutation=[1,0]
    kernel MatMul in %0 %2 out %3 f32(4,5)
    kernel Neg in %2 out %4 f32(3,5)
    results %3 %4)");
  expect_apart(R"(
    param %0 f32(4,3)
    param %1 f32(5,3)
    kernel Transpose in %1 out %2 f32(3,5)
      attrs permutation=[1,0]
    kernel MatMul in %0 %2 out %3 f32(4,5)
    results %3 %2)");
}

TEST_F(StridedProducts, AnOverwrittenTensorIsReadOnlyBefore) {
  const std::string update = "kernel AddLhsInplace in %1 %1 out %5 f32(5,3) tie 0 %1\n";
  const std::string product = "kernel MatMul in %0 %2 out %3 f32(4,5)\n";
  const std::string begin = R"(
    param %0 f32(4,3)
    param %1 f32(5,3) last %5
    kernel Transpose in %1 out %2 f32(3,5)
      attrs permutation=[1,0]
    )";
  EXPECT_EQ(run(begin + product + update + "results %3"), 1);
  EXPECT_EQ(run(begin + update + product + "results %3"), 0);
}

TEST_F(StridedProducts, ATargetWithoutAKernelReadsCopies) {
  target_.kernel = [](const OpView& op) {
    return KernelChoice{.key = op.def().type == "StridedMatMul" ? "test.reference" : "test.any"};
  };
  expect_apart(R"(
    param %0 f32(2,5,3,4)
    param %1 f32(2,3,4,5)
    kernel Transpose in %0 out %2 f32(2,3,5,4)
      attrs permutation=[0,2,1,3]
    kernel MatMul in %2 %1 out %3 f32(2,3,5,5)
    results %3)");
}

// Strides describe only some shapes of a transposed tensor.
TEST_F(StridedProducts, AMergedOperandIsCopied) {
  expect_apart(R"(
    param %0 f32(2,3,5,4)
    param %1 f32(2,12,7)
    kernel Transpose in %0 out %2 f32(2,5,3,4)
      attrs permutation=[0,2,1,3]
    view in %2 out %3 f32(2,5,12)
    kernel MatMul in %3 %1 out %4 f32(2,5,7)
    results %4)");
}

}  // namespace
}  // namespace sluice::compiler
