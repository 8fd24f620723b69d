#include "sluice/ir/graph_editor.h"

#include <gtest/gtest.h>

#include "sluice/ir/builtin.h"
#include "sluice/ir/call.h"
#include "sluice/ir/ir.h"
#include "sluice/ir/verify.h"

namespace sluice {
namespace {

using Side = GraphEditor::Placement::Side;

std::vector<TensorSpec> same(const OpView& op) { return {op.input(0)}; }

const OpDef& copy() {
  static const OpDef def = [] {
    OpDef d;
    d.type = d.name = "Copy";
    d.inputs = {{"x"}};
    d.outputs = {"y"};
    d.infer = same;
    return d;
  }();
  return def;
}

const OpDef& update() {
  static const OpDef def = [] {
    OpDef d = copy();
    d.type = d.name = "Update";
    d.inputs = {{"x", Mode::kUpdate}};
    d.aliases = {{0, 0}};
    return d;
  }();
  return def;
}

Tensor emit(const OpDef& def, const Tensor& x) { return x.graph().emit(def, {x}, {})[0]; }

std::vector<int64_t> ids(const Graph& g) {
  std::vector<int64_t> result;
  for (const Op& op : g.ops()) result.push_back(op.id);
  return result;
}

TEST(GraphEditor, AppendedOutputsReachEveryCall) {
  Ir ir;
  Tensor inner;
  Graph& f = ir.create_graph(
      "f",
      [&](Graph&, Tensor x) {
        inner = emit(copy(), x);
        return emit(copy(), inner);
      },
      f32_spec({2}));
  Graph& other = ir.create_graph(
      "other", [](Graph&, Tensor x) { return x; }, f32_spec({2}));
  Graph& user = ir.create_graph(
      "user",
      [&](Graph& g, Tensor c, Tensor x) {
        ops::call(g, f, {x});
        ops::conditional(g, c, f, other, {x}, {x});
        return ops::call(g, other, {x});
      },
      TensorSpec{{}, boolean, {}}, f32_spec({2}));
  const CallSiteInfo call(user, user.ops()[0].id);
  GraphEditor(f).append_outputs({inner});
  verify(ir);
  EXPECT_EQ(f.outputs().size(), 2u);
  EXPECT_EQ(f.original_outputs().size(), 1u);
  EXPECT_EQ(other.outputs().size(), 2u);  // Zeros, which the conditional needs.
  EXPECT_EQ(other.original_outputs().size(), 1u);
  for (const Op& op : user.ops()) EXPECT_EQ(op.outputs.size(), 2u);
  EXPECT_EQ(call.graph_to_parent(inner), call.output(1));
}

TEST(GraphEditor, RepeatedGraphsKeepTheirOutputs) {
  Ir ir;
  Graph& f = ir.create_graph(
      "f", [](Graph&, Tensor x) { return emit(copy(), x); }, f32_spec({2}));
  Graph& user = ir.create_graph(
      "user", [&](Graph& g, Tensor x) { return ops::repeat(g, f, 3, {x}); }, f32_spec({2}));
  Graph& wrapper = ir.graph(user.ops()[0].callees[0]);
  EXPECT_THROW(GraphEditor(wrapper).append_outputs({wrapper.outputs()[0]}), Error);
  GraphEditor(f).append_outputs({f.inputs()[0]});
  verify(ir);
}

TEST(GraphEditor, PlacedOpsReadTheVersionThere) {
  Ir ir;
  Tensor y;
  Graph& f = ir.create_graph(
      "f",
      [&](Graph&, Tensor x) {
        y = emit(copy(), x);
        emit(update(), y);
        return emit(copy(), y);
      },
      f32_spec({2}));
  emit(copy(), y);                 // 103
  emit(update(), f.outputs()[0]);  // 104
  GraphEditor(f).place(
      {{OpId(103), OpId(101), Side::kBefore}, {OpId(104), OpId(102), Side::kAfter}});
  verify(f);
  EXPECT_EQ(ids(f), (std::vector<int64_t>{100, 103, 101, 102, 104}));
  EXPECT_EQ(f.op(OpId(103)).inputs[0].version, 0);
  EXPECT_EQ(f.op(OpId(102)).inputs[0].version, 1);
  EXPECT_EQ(f.op_index(OpId(104)), 4);
}

TEST(GraphEditor, DeadOpsAndTheirTensorsGo) {
  Ir ir;
  const H2dStream stream = ir.h2d_stream(f32_spec({2}), "s");
  Tensor kept;
  Graph& f = ir.create_graph(
      "f",
      [&](Graph& g, Tensor x, Tensor state) {
        const Tensor a = emit(copy(), x);  // 100; only a dead op reads it
        emit(copy(), a);                   // 101
        emit(update(), state);             // 102, visible to the caller
        g.host_load(stream);               // 103, 104: an effect
        g.scalar(1, f32, "unused");
        kept = emit(copy(), x);  // 105
        emit(update(), kept);    // 106, visible through the old handle
        return kept;
      },
      f32_spec({2}), NamedInput{"state", f32_spec({2}), Pass::kByReference});
  GraphEditor editor(f);
  editor.remove_dead_ops();
  EXPECT_EQ(ids(f), (std::vector<int64_t>{102, 103, 104, 105, 106}));
  const auto before = f.tensor_count();
  const auto moved = editor.compact();
  EXPECT_EQ(f.tensor_count(), before - 3);
  EXPECT_EQ(f.output_ids()[0], moved[kept.id()]);
  EXPECT_FALSE(f.input_named("unused").valid());
  verify(f);
}

TEST(GraphEditor, RollsBackToAMark) {
  Ir ir;
  Graph& f = ir.create_graph(
      "f", [](Graph&, Tensor x) { return emit(copy(), x); }, f32_spec({2}));
  Graph& user = ir.create_graph(
      "user", [&](Graph& g, Tensor x) { return ops::call(g, f, {x}); }, f32_spec({2}));
  const std::string before = print_schedule(f) + print_schedule(user);
  for (int i = 0; i < 20; ++i) ir.create_empty_graph("other").input(f32_spec({1}));
  const GraphEditor::Mark mark = GraphEditor(f).mark();
  EXPECT_EQ(mark.graphs.size(), 2) << "f and its caller: the cost must not grow with the program";
  const Tensor t = emit(copy(), f.inputs()[0]);
  GraphEditor(f).place({{t.graph().info(t).producer, OpId(100), Side::kBefore}});
  GraphEditor(f).append_outputs({t});
  ir.create_empty_graph("more").input(f32_spec({1}));
  GraphEditor::roll_back(ir, mark);
  EXPECT_EQ(print_schedule(f) + print_schedule(user), before);
  EXPECT_EQ(ir.graph_count(), 22);
  verify(ir);
  EXPECT_EQ(emit(copy(), f.inputs()[0]).name(), "Copy_102");
}

}  // namespace
}  // namespace sluice
