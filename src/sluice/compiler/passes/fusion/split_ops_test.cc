#include "sluice/compiler/passes/fusion/split_ops.h"

#include <gtest/gtest.h>

#include "sluice/compiler/test_bodies.h"

namespace sluice::compiler {
namespace {

constexpr const char* kLoss = R"(
    body main entry
      param %0 f32(2,3)
      param %1 i32(2)
      kernel Softmax in %0 out %2 f32(2,3)
      kernel NlllWithSoftmaxGradDirect in %2 %1 out %3 f32() %4 f32(2,3) where "line 1"
      results %3 %4
    end)";

std::vector<std::string> names(const Body& body) {
  std::vector<std::string> names;
  for (const Node& node : body.nodes) names.push_back(name_of(node));
  return names;
}

TEST(SplitOps, ALossIsSplitWhereItsFirstPartJoinsTheMaker) {
  TestProgram p(kLoss);
  p.target->fused = {"Softmax+Nll"};
  EXPECT_EQ(split_ops(p.body(), *p.target), 1);
  verify(p.program, "split");
  const Body& body = p.body();
  EXPECT_EQ(names(body),
            (std::vector<std::string>{"Softmax", "Nll", "NllTotal", "NllSoftmaxGrad"}));
  EXPECT_EQ(body.nodes[NodeId(2)].outputs[0], 3);
  EXPECT_EQ(body.nodes[NodeId(3)].outputs[0], 4);
}

TEST(SplitOps, ALossThatNothingJoinsStays) {
  TestProgram p(kLoss);
  EXPECT_EQ(split_ops(p.body(), *p.target), 0);
  p.expect(kLoss);
}

TEST(SplitOps, PartsThatNothingReadsAreNotMade) {
  TestProgram p(R"(
    body main entry
      param %0 f32(2,3)
      param %1 i32(2)
      kernel Softmax in %0 out %2 f32(2,3)
      kernel NlllWithSoftmaxGradDirect in %2 %1 out %3 f32() %4 f32(2,3)
      results %4
    end)");
  p.target->fused = {"Softmax+Nll"};
  split_ops(p.body(), *p.target);
  EXPECT_EQ(names(p.body()), (std::vector<std::string>{"Softmax", "NllSoftmaxGrad"}));
}

// The part that reads the producer's result is not the first one, and some parts are views.
TEST(SplitOps, ABatchNormIsSplitWhereItJoinsTheConvolution) {
  constexpr const char* kNorm = R"(
    body main entry
      param %0 f32(1,2,4)
      param %1 f32(3,2,3)
      param %2 f32(3)
      param %3 f32(3)
      param %4 f32(3)
      param %5 f32(3)
      kernel Conv in %0 %1 out %6 f32(1,3,2)
      kernel BatchNormInference in %6 %2 %3 %4 %5 out %7 f32(1,3,2)
      results %7
    end)";
  TestProgram p(kNorm);
  EXPECT_EQ(split_ops(p.body(), *p.target), 0);
  p.target->fused = {"Conv+Sub"};
  EXPECT_EQ(split_ops(p.body(), *p.target), 1);
  verify(p.program, "split");
  EXPECT_EQ(names(p.body()), (std::vector<std::string>{"Conv", "BatchNormScale", "Reshape",
                                                       "Reshape", "Reshape", "Sub", "Mul", "Add"}));
  EXPECT_TRUE(p.body().nodes[NodeId(3)].is<Node::View>());
  EXPECT_EQ(p.body().nodes.back().outputs[0], 7);
}

// Runs the pass on a reduction. The target runs it in `whole` tasks, and its parts in `part` tasks.
int64_t split_reduction(const std::string& spec, int64_t whole, int64_t part, TestProgram** out) {
  static std::unique_ptr<TestProgram> p;
  p = std::make_unique<TestProgram>("body main entry\nparam %0 " + spec +
                                    "\nkernel ReduceSum in %0" +
                                    " out %1 f32()\nattrs flatten=true axes=[]\nresults %1\nend");
  p->target->kernel = [=](const OpView& op) {
    return KernelChoice{.key = "k", .tasks = op.def().type == "ReduceSum" ? whole : part};
  };
  *out = p.get();
  return split_ops(p->body(), *p->target);
}

TEST(SplitOps, AReductionOfOneTaskBecomesTasksAndTheirSum) {
  TestProgram* p = nullptr;
  EXPECT_EQ(split_reduction("f32(100000)", 1, 4, &p), 1);
  verify(p->program, "split");
  EXPECT_EQ(names(p->body()), (std::vector<std::string>{"ReduceChunks", "ReduceTotal"}));
  EXPECT_EQ(p->body().results[0], p->body().nodes[NodeId(1)].outputs[0]);
}

TEST(SplitOps, AReductionStaysWhereItsPartsWouldNotSpread) {
  TestProgram* p = nullptr;
  EXPECT_EQ(split_reduction("f32(100000)", 1, 1, &p), 0);
  EXPECT_EQ(split_reduction("f32(100000)", 4, 4, &p), 0) << "several tasks run it already";
  EXPECT_EQ(split_reduction("f32(10)", 1, 4, &p), 0) << "one chunk";
  EXPECT_EQ(split_reduction("f16(100000)", 1, 4, &p), 0) << "parts compute in f32";
}

}  // namespace
}  // namespace sluice::compiler
