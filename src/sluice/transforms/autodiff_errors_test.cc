#include "sluice/ops/activations.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/basic.h"
#include "sluice/ops/reductions.h"
#include "sluice/transforms/autodiff.h"
#include "tests/support/gradient_check.h"

namespace sluice::transforms {
namespace {

Graph& product(Ir& ir) {
  return ir.create_graph(
      "mul", [](Graph&, Tensor a, Tensor b) { return a * b; }, NamedInput{"a", f32_spec({3})},
      NamedInput{"b", f32_spec({3})});
}

void expect_error(const std::function<void()>& f, const std::string& part) {
  const std::string error = usage_error(f);
  EXPECT_NE(error.find(part), std::string::npos) << error;
}

TEST(AutodiffErrors, Arguments) {
  Ir ir;
  Graph& f = product(ir);
  Graph& g = product(ir);
  expect_error([&] { autodiff(ir.main_graph()); },
               "autodiff: the graph must not be an entry graph, got main");
  expect_error(
      [&] { autodiff(f, {.grads_required = Tensors{}}); },
      "autodiff of graph mul_subgraph(0): grads_required must be at least one tensor, got none");
  expect_error([&] { autodiff(f, {.grads_required = g.inputs()}); },
               "grads_required must be tensors of the graph, got 'a' of graph mul_subgraph(1)");
  expect_error(
      [&] { autodiff(f, {.grads_provided = g.outputs()}); },
      "grads_provided must be tensors of the graph, got 'mul_101' of graph mul_subgraph(1)");
  expect_error([&] { autodiff(f, {.grads_provided = Tensors{Tensor()}}); },
               "grads_provided must be tensors of the graph, got an empty handle");
}

TEST(AutodiffErrors, IntegersHaveNoGradient) {
  Ir ir;
  Graph& f = ir.create_graph(
      "f",
      [](Graph& g, Tensor x, Tensor n) {
        g.add_output(x * x);
        g.add_output(n + n);
      },
      f32_spec({3}), i32_spec({3}));
  const GradGraphInfo info = autodiff(f);  // The default ignores integer tensors.
  EXPECT_EQ(info.expected_outputs().size(), 1u);
  EXPECT_EQ(info.expected_inputs().size(), 2u);
  check_gradients(info, random_inputs(f));
  expect_error([&] { autodiff(f, {.grads_required = f.inputs()}); },
               "grads_required must be floating-point tensors, got 'x1', which is (3,) int32");
}

TEST(AutodiffErrors, UnreachableGradientOrZeros) {
  Ir ir;
  Graph& f = ir.create_graph(
      "f", [](Graph&, Tensor x, Tensor y) { return x * ops::detach(y); },
      NamedInput{"x", f32_spec({3})}, NamedInput{"y", f32_spec({3})});
  expect_error([&] { autodiff(f); }, "autodiff of graph f_subgraph(0): no gradient reaches 'y'");
  const GradGraphInfo info = autodiff(f, {.unreachable = Unreachable::kZeros});
  Graph& step = gradient_step(info);
  const auto results =
      Interpreter(ir, Precision::kDouble)
          .evaluate(step, {random_array({3}, 1), random_array({3}, 2), random_array({3}, 3)});
  EXPECT_EQ(results[1].to_doubles(), (std::vector<double>{0, 0, 0}));
}

TEST(AutodiffErrors, AGraphThatIsRepeatedGetsNoFurtherOutputs) {
  Ir ir;
  Graph& body = ir.create_graph(
      "body", [](Graph&, Tensor x) { return ops::gelu(x * x); }, f32_spec({3}));
  Graph& user = ir.create_graph(
      "user", [&](Graph& g, Tensor x) { return ops::repeat(g, body, 2, {x}); }, f32_spec({3}));
  // The loop's wrapper calls the body and does not return the outputs that autodiff appends to it.
  check_gradients(autodiff(body), random_inputs(body));
  verify(ir);
  Graph& wrapper = ir.graph(user.ops()[0].callees[0]);
  Graph& net = ir.create_graph(
      "net",
      [&](Graph& g, Tensor n, Tensor go, Tensor x) {
        return ops::call(g, wrapper, {n, go, x});
      },
      i32_spec({}), TensorSpec{{}, boolean, {}}, f32_spec({3}));
  expect_error([&] { autodiff(net); }, "is the body of Loop.");
  verify(ir);
}

TEST(AutodiffErrors, GivenGradientGraphMustFit) {
  Ir ir;
  Graph& f = product(ir);
  const GradGraphInfo info = autodiff(
      f, {.grads_provided = Tensors{f.inputs()[0]}, .grads_required = Tensors{f.inputs()[0]}});
  Graph& net = ir.create_graph(
      "net",
      [&](Graph& g, Tensor x, Tensor y) {
        return ops::call(g, f, {x, y});
      },
      f32_spec({3}), f32_spec({3}));
  expect_error(
      [&] {
        autodiff(net,
                 {.grads_required = Tensors{net.inputs()[0]}, .called_graphs = {{f.id(), info}}});
      },
      "takes the gradient of 'a', which is not an output");

  const GradGraphInfo of_a = autodiff(f, {.grads_required = Tensors{f.inputs()[0]}});
  expect_error(
      [&] {
        autodiff(net, {.called_graphs = {{f.id(), of_a}}});
      },
      "gradient graph mul_subgraph(0)_bwd_1 given for mul_subgraph(0) has no gradient of 'b'");
  const GradGraphInfo step = autodiff(
      net, {.grads_required = Tensors{net.inputs()[0]}, .called_graphs = {{f.id(), of_a}}});
  check_gradients(step, random_inputs(net));
}

TEST(AutodiffErrors, AnAccumulatingGradientGraphStandsInForNoCall) {
  Ir ir;
  Graph& f = product(ir);
  const AccumulationResult accumulating = autodiff_with_accumulation(
      f, {f.inputs()[0]}, {}, {.grads_required = Tensors{f.inputs()[1]}});
  Graph& net = ir.create_graph(
      "net",
      [&](Graph& g, Tensor x, Tensor y) {
        return ops::call(g, f, {x, y});
      },
      f32_spec({3}), f32_spec({3}));
  expect_error(
      [&] {
        autodiff(net, {.grads_required = Tensors{net.inputs()[1]},
                       .called_graphs = {{f.id(), accumulating.info}}});
      },
      "of mul_subgraph(0) cannot be used for a call, because other transforms added inputs");
}

TEST(AutodiffErrors, ConnectionsAreThoseOfTheGraph) {
  Ir ir;
  Graph& f = product(ir);
  const GradGraphInfo info = autodiff(f);
  expect_error([&] { GradGraphInfo(f, info.graph(), info.expected_inputs(), {}); },
               "must have 3 inputs and 0 outputs, got 3 and 2");
}

// In-place y = 2x. Its gradient reads x before and after the write.
std::vector<TensorSpec> same_spec(const OpView& op) { return {op.input(0)}; }
Tensors both_sides(GradContext& g) {
  return {g.forward([](const Tensors& in, const Tensors& out) { return in[0] * out[0]; })};
}

TEST(AutodiffErrors, AGradientReadsOneSideOfAWrite) {
  OpDef greedy;
  greedy.type = "Greedy";
  greedy.name = "greedy_";
  greedy.inputs = {{"x", Mode::kUpdate}};
  greedy.outputs = {"y"};
  greedy.aliases = {{0, 0}};
  greedy.infer = same_spec;
  greedy.grad = both_sides;
  Ir ir;
  Graph& f = ir.create_graph(
      "f", [&](Graph& g, Tensor x) { return g.emit(greedy, {x * x}, {}); }, f32_spec({3}));
  expect_error([&] { autodiff(f); }, "needs its operand both before and after it is written");
}

}  // namespace
}  // namespace sluice::transforms
