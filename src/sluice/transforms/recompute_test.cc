#include "sluice/transforms/recompute.h"

#include "sluice/ops/activations.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/matmul.h"
#include "sluice/transforms/autodiff.h"
#include "tests/support/gradient_check.h"

namespace sluice::transforms {
namespace {

TEST(Recompute, SameGradientsFromForwardInputsAlone) {
  Ir ir;
  Graph& forward = ir.create_graph(
      "layer",
      [](Graph&, Tensor x, Tensor w, Tensor b) { return ops::gelu(ops::matmul(x, w) + b); },
      NamedInput{"x", f32_spec({2, 3})}, NamedInput{"w", f32_spec({3, 3}), Pass::kByReference},
      NamedInput{"b", f32_spec({3})});
  const GradGraphInfo info = autodiff(forward);
  const RecomputeResult result = recompute_graph(info);
  EXPECT_EQ(result.info.graph().name(), "layer_bwd_recomp_subgraph(1)");
  const Tensors inputs = result.info.graph().inputs();
  ASSERT_EQ(inputs.size(), 4u);
  EXPECT_EQ(inputs[0].name(), "Gradient___gelu_102");
  EXPECT_EQ(inputs[1].name(), "w");
  EXPECT_EQ(inputs[2].name(), "x");
  EXPECT_EQ(inputs[3].name(), "b");
  EXPECT_EQ(result.info.graph().info(inputs[1]).pass, Pass::kByReference);
  for (const ExpectedConnection& c : result.info.expected_inputs()) {
    EXPECT_EQ(forward.info(c.fwd_tensor).kind == TensorKind::kInput, c.type == Connection::kFwd);
  }
  check_gradients(result.info, random_inputs(forward));
}

TEST(Recompute, KeepsAccumulators) {
  Ir ir;
  Graph& forward = ir.create_graph(
      "layer", [](Graph&, Tensor x, Tensor w) { return ops::gelu(ops::matmul(x, w)); },
      NamedInput{"x", f32_spec({2, 3})}, NamedInput{"w", f32_spec({3, 3})});
  const AccumulationResult accumulated = autodiff_with_accumulation(
      forward, {forward.input_named("w")}, {}, {.grads_required = {forward.input_named("x")}});
  const RecomputeResult result = recompute_graph(accumulated.info);
  verify(ir);
  const Graph& g = result.info.graph();
  for (const AddedInput& a : accumulated.added) {
    const auto found = std::find_if(result.inputs.begin(), result.inputs.end(),
                                    [&](const auto& p) { return p.first == a.input; });
    ASSERT_NE(found, result.inputs.end());
    EXPECT_EQ(found->second.name(), a.name);
    EXPECT_EQ(g.info(found->second).pass, Pass::kByReference);
  }
  EXPECT_EQ(g.inputs().back().name(), "mean_accum_counter");
}

TEST(Recompute, RefusesWhatMustNotRunTwice) {
  Ir ir;
  const H2dStream stream = ir.h2d_stream(f32_spec({3}), "noise");
  Graph& loads = ir.create_graph(
      "loads", [&](Graph& g, Tensor x) { return x * g.host_load(stream); }, f32_spec({3}));
  const GradGraphInfo info = autodiff(loads);
  std::string error = usage_error([&] { recompute_graph(info); });
  EXPECT_NE(error.find("recompute of graph loads_subgraph(0): HostLoad.101"), std::string::npos)
      << error;

  Graph& counts = ir.create_graph(
      "counts",
      [](Graph&, Tensor x, Tensor n) {
        ops::add_(n, x);
        return x * x;
      },
      f32_spec({3}), NamedInput{"n", f32_spec({3}), Pass::kByReference});
  const GradGraphInfo other = autodiff(counts, {.grads_required = Tensors{counts.inputs()[0]}});
  error = usage_error([&] { recompute_graph(other); });
  EXPECT_NE(error.find("it writes its input 'n'"), std::string::npos) << error;
}

}  // namespace
}  // namespace sluice::transforms
