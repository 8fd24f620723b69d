#include "sluice/transforms/autodiff.h"

#include "sluice/ir/ir.h"
#include "sluice/ops/activations.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/matmul.h"
#include "tests/support/gradient_check.h"

namespace sluice::transforms {
namespace {

Graph& two_layers(Ir& ir) {
  return ir.create_graph(
      "net",
      [](Graph&, Tensor x, Tensor w1, Tensor w2) {
        return ops::matmul(ops::tanh(ops::matmul(x, w1)), w2);
      },
      NamedInput{"x", f32_spec({2, 3})}, NamedInput{"w.1", f32_spec({3, 3})},
      NamedInput{"w.2", f32_spec({3, 2})});
}

TEST(Accumulation, AddsCounterAndAccumulatorsByReference) {
  Ir ir;
  Graph& forward = two_layers(ir);
  const Tensors weights{forward.input_named("w.1"), forward.input_named("w.2")};
  const AccumulationResult result =
      autodiff_with_accumulation(forward, weights, {"fc1.weight", "fc2.weight"},
                                 {.grads_required = {forward.input_named("x")}});
  verify(ir);
  ASSERT_EQ(result.added.size(), 3u);
  EXPECT_EQ(result.added[0].name, "mean_accum_counter");
  EXPECT_EQ(result.added[1].name, "accum.fc1.weight");
  EXPECT_EQ(result.added[2].name, "accum.fc2.weight");
  EXPECT_EQ(result.added[2].spec, f32_spec({3, 2}));
  const Graph& g = result.info.graph();
  ASSERT_EQ(g.inputs().size(), result.info.expected_inputs().size() + 3);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(g.inputs()[result.info.expected_inputs().size() + i], result.added[i].input);
    EXPECT_EQ(g.info(result.added[i].input).pass, Pass::kByReference);
  }
  EXPECT_EQ(result.info.expected_outputs().size(), 1u);
  EXPECT_EQ(g.outputs().size(), 1u);
  // The second layer's gradient is accumulated before the first layer's is computed.
  std::vector<std::string> order;
  for (const Op& op : g.ops()) order.push_back(op.def->type);
  const auto first = std::find(order.begin(), order.end(), "Accumulate");
  EXPECT_LT(first - order.begin(), 3);
  EXPECT_EQ(order.back(), "AddLhsInplace");
}

TEST(Accumulation, KeepsTheRunningMean) {
  Ir ir;
  Graph& forward = two_layers(ir);
  const Tensors weights{forward.input_named("w.1"), forward.input_named("w.2")};
  const GradGraphInfo plain = autodiff(forward, {.grads_required = weights});
  const AccumulationResult result = autodiff_with_accumulation(forward, weights);
  EXPECT_EQ(result.added[1].name, "accum.w_1");

  Graph& main = ir.main_graph();
  const H2dStream batch = ir.h2d_stream(f32_spec({2, 3}), "batch");
  const H2dStream seed = ir.h2d_stream(f32_spec({2, 2}), "seed");
  const Tensor w1 = main.variable(random_array({3, 3}, 1).cast(f32), "w1");
  const Tensor w2 = main.variable(random_array({3, 2}, 2).cast(f32), "w2");
  Tensors state;
  for (const AddedInput& a : result.added)
    state.push_back(main.variable(HostTensor(a.spec), a.name));
  const CallSiteInfo call = ops::call_with_info(main, forward, {main.host_load(batch), w1, w2});
  TensorMap arguments = result.info.inputs_dict(call);
  for (size_t i = 0; i < state.size(); ++i) arguments.emplace_back(result.added[i].input, state[i]);
  ops::call(main, result.info.graph(), {main.host_load(seed)}, arguments);

  Graph& step = gradient_step(plain);
  Interpreter interpreter(ir, Precision::kDouble);
  std::vector<double> mean(9, 0.0);
  const int batches = 3;
  for (int k = 0; k < batches; ++k) {
    const HostTensor x = random_array({2, 3}, 10 + static_cast<uint64_t>(k)).cast(f32);
    const HostTensor dy = random_array({2, 2}, 20 + static_cast<uint64_t>(k)).cast(f32);
    interpreter.run({{batch, x}, {seed, dy}});
    const auto gradient =
        interpreter.evaluate(step, {x, interpreter.read(w1), interpreter.read(w2), dy})[0]
            .to_doubles();
    for (size_t i = 0; i < mean.size(); ++i) mean[i] += gradient[i] / batches;
  }
  EXPECT_EQ(interpreter.read(state[0]).to_doubles()[0], batches);
  const auto got = interpreter.read(state[1]).to_doubles();
  for (size_t i = 0; i < mean.size(); ++i) EXPECT_NEAR(got[i], mean[i], 1e-12);
}

TEST(Accumulation, SumsWhereAsked) {
  Ir ir;
  Graph& forward = two_layers(ir);
  const AccumulationResult result = autodiff_with_accumulation(
      forward, {forward.input_named("w.1")}, {"w1"}, {.accumulation = Accumulation::kSum});
  verify(ir);
  ASSERT_EQ(result.added.size(), 1u);
  EXPECT_EQ(result.added[0].name, "accum.w1");
  const std::vector<HostTensor> inputs = random_inputs(forward);
  Graph& main = ir.main_graph();
  Tensors arguments;
  for (const HostTensor& t : inputs) arguments.push_back(main.variable(t.cast(f32)));
  const Tensor accum = main.variable(HostTensor(result.added[0].spec), "accum");
  const Tensor dy = main.variable(random_array({2, 2}, 9).cast(f32), "dy");
  for (int k = 0; k < 2; ++k) {
    const CallSiteInfo call = ops::call_with_info(main, forward, arguments);
    TensorMap named = result.info.inputs_dict(call);
    named.emplace_back(result.added[0].input, accum);
    ops::call(main, result.info.graph(), {dy}, named);
  }
  Graph& step =
      gradient_step(autodiff(forward, {.grads_required = Tensors{forward.input_named("w.1")}}));
  Interpreter interpreter(ir, Precision::kDouble);
  interpreter.run();
  std::vector<HostTensor> given;
  for (const Tensor& t : arguments) given.push_back(interpreter.read(t));
  given.push_back(interpreter.read(dy));
  const auto want = interpreter.evaluate(step, given)[0].to_doubles();
  const auto got = interpreter.read(accum).to_doubles();
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], 2 * want[i], 1e-12);
}

TEST(Accumulation, GroupsAndErrors) {
  Ir ir(4);
  Graph& forward = two_layers(ir);
  const AccumulationResult result =
      autodiff_with_accumulation(forward, {forward.input_named("w.1")}, {"w1"},
                                 {.replica_groupings = {{"w1", ir.replica_grouping(2)}}});
  EXPECT_EQ(result.added[1].group, ir.replica_grouping(2));
  EXPECT_FALSE(result.added[0].group.has_value());
  EXPECT_EQ(usage_error([&] {
              autodiff_with_accumulation(forward, {forward.input_named("w.1")}, {"a", "b"});
            }),
            "autodiff_with_accumulation of graph net_subgraph(0): names must be empty or one per "
            "tensor, got 2 for 1 tensors");
  EXPECT_NE(usage_error([&] {
              autodiff_with_accumulation(forward, {});
            }).find("at least one tensor, got none"),
            std::string::npos);
}

}  // namespace
}  // namespace sluice::transforms
