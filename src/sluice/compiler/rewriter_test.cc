#include "sluice/compiler/rewriter.h"

#include <gtest/gtest.h>

#include "sluice/compiler/test_bodies.h"
#include "sluice/ops/arithmetic.h"

namespace sluice::compiler {
namespace {

bool is_op(const Node& node, const OpDef& def) { return node.def == &def; }

TEST(Rewriter, SplitsANodeIntoParts) {
  TestProgram p(R"(
    body main entry
      param %0 f32(4)
      param %1 f32(4)
      kernel Sub in %0 %1 out %2 f32(4)
      kernel Neg in %2 out %3 f32(4)
      results %3
    end)");
  const std::vector<OpStage> parts{{&ops::neg_def(), {}, {1}, -1, {}},
                                   {&ops::add_def(), {}, {0, ~0}, 0, {}}};
  Rewriter rewriter(p.body());
  rewriter.run([&](Node& node) {
    if (!is_op(node, ops::sub_def())) return true;
    rewriter.split(node, parts);
    return false;
  });
  EXPECT_EQ(p.body().value(ValueIndex(4)).tensor, "neg of ");
  p.body().value(ValueIndex(4)).tensor.clear();
  p.expect(R"(
    body main entry
      param %0 f32(4)
      param %1 f32(4)
      kernel Neg in %1 out %4 f32(4)
      kernel Add in %0 %4 out %2 f32(4)
      kernel Neg in %2 out %3 f32(4)
      results %3
    end)");
}

TEST(Rewriter, AddsOnlyPartsOfUsedOutputs) {
  TestProgram p(R"(
    body main entry
      param %0 f32(4)
      kernel Neg in %0 out %1 f32(4)
      results %0
    end)");
  const std::vector<OpStage> parts{{&ops::neg_def(), {}, {0}, 0, {}}};
  Rewriter rewriter(p.body());
  rewriter.run([&](Node& node) { return rewriter.split(node, parts, {false}), false; });
  EXPECT_TRUE(p.body().nodes.empty());
}

TEST(Rewriter, ReplacesLaterUses) {
  TestProgram p(R"(
    body main entry
      param %0 f32(4)
      kernel Neg in %0 out %1 f32(4)
      kernel Neg in %1 out %2 f32(4)
      kernel Add in %2 %1 out %3 f32(4)
      results %2 %3
    end)");
  Rewriter rewriter(p.body());
  rewriter.run([&](Node& node) {
    const Node* const inner = rewriter.maker(node.inputs[0]);
    if (inner == nullptr || !is_op(node, ops::neg_def())) return true;
    rewriter.replace_use(node.outputs[0], inner->inputs[0]);
    return false;
  });
  p.expect(R"(
    body main entry
      param %0 f32(4)
      kernel Neg in %0 out %1 f32(4)
      kernel Add in %0 %1 out %3 f32(4)
      results %0 %3
    end)");
}

TEST(Rewriter, AReplacementOfAReplacementIsTheLastOne) {
  TestProgram p(R"(
    body main entry
      param %0 f32(4)
      kernel Neg in %0 out %1 f32(4)
      kernel Neg in %0 out %2 f32(4)
      kernel Neg in %1 out %3 f32(4)
      results %3
    end)");
  Rewriter rewriter(p.body());
  rewriter.run([&](Node& node) {
    if (node.outputs[0] == 1) rewriter.replace_use(ValueIndex(1), ValueIndex(2));
    if (node.outputs[0] == 2) rewriter.replace_use(ValueIndex(2), ValueIndex(0));
    return node.outputs[0] == 3;
  });
  EXPECT_EQ(p.body().nodes.size(), 1u);
  EXPECT_EQ(p.body().nodes[NodeId(0)].inputs[0], 0);
}

TEST(Rewriter, AddsAnUpdatedArgument) {
  Node node;
  node.what = Node::Call{.callee = BodyId(0), .results = 1};
  const TensorSpec spec{{4}, f32, {}};
  add_output(node, ValueIndex(5), spec);
  EXPECT_EQ(add_updated(node, ValueIndex(2), ValueIndex(6), spec), 0);
  EXPECT_EQ(add_updated(node, ValueIndex(3), ValueIndex(7), spec), 1);
  std::vector<std::pair<size_t, size_t>> updated;
  for_each_updated(node, [&](size_t input, size_t output) { updated.emplace_back(input, output); });
  EXPECT_EQ(updated, (std::vector<std::pair<size_t, size_t>>{{0, 1}, {1, 2}}));
  EXPECT_EQ(node.outputs, ids<ValueIndex>({5, 6, 7}));
  EXPECT_EQ(node.ties, (std::vector<Tie>{{1, ValueIndex(2)}, {2, ValueIndex(3)}}));
  EXPECT_EQ(node.in_specs.size(), 2u);
  EXPECT_EQ(node.out_specs.size(), 3u);
}

}  // namespace
}  // namespace sluice::compiler
