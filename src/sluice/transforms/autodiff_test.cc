#include "sluice/transforms/autodiff.h"

#include "sluice/base/provenance.h"
#include "sluice/ir/ir.h"
#include "sluice/ops/activations.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/basic.h"
#include "sluice/ops/matmul.h"
#include "sluice/ops/reductions.h"
#include "sluice/ops/reshape.h"
#include "tests/support/gradient_check.h"

namespace sluice::transforms {
namespace {

std::vector<std::string> names(const Tensors& tensors) {
  std::vector<std::string> result;
  for (const Tensor& t : tensors) result.push_back(t.name());
  return result;
}

using Names = std::vector<std::string>;

Graph& linear(Ir& ir) {
  return ir.create_graph(
      "Linear", [](Graph&, Tensor x, Tensor w, Tensor b) { return ops::matmul(x, w) + b; },
      NamedInput{"x", f32_spec({2, 4})}, NamedInput{"weight", f32_spec({4, 3})},
      NamedInput{"bias", f32_spec({3})});
}

TEST(Autodiff, LinearReadsNeitherBiasNorOutput) {
  Ir ir;
  Graph& forward = linear(ir);
  const GradGraphInfo info = autodiff(forward);
  EXPECT_EQ(forward.outputs().size(), 1u);
  EXPECT_EQ(print_schedule(info.graph()),
            "Graph : Linear_subgraph(0)_bwd\n"
            "  (%1, %2, %3) -> (%5, %6, %4) {\n"
            "    ReduceSum.102 (%1 [(2, 3) float32]) -> (%4 [(3,) float32])\n"
            "    MatMul.103 (%1 [(2, 3) float32], %2 [(4, 3) float32]) -> (%5 [(2, 4) float32])\n"
            "    MatMul.104 (%3 [(2, 4) float32], %1 [(2, 3) float32]) -> (%6 [(4, 3) float32])\n"
            "  }");
  EXPECT_EQ(to_string(info),
            "GradGraphInfo[\n"
            "  graph=Linear_subgraph(0)_bwd\n"
            "  expected_inputs=["
            "(FwdGrad, Tensor[Linear_subgraph(0)/add_101 popxl.dtypes.float32 (2, 3)]), "
            "(Fwd, Tensor[Linear_subgraph(0)/weight popxl.dtypes.float32 (4, 3)]), "
            "(Fwd, Tensor[Linear_subgraph(0)/x popxl.dtypes.float32 (2, 4)])]\n"
            "  expected_outputs=["
            "(FwdGrad, Tensor[Linear_subgraph(0)/x popxl.dtypes.float32 (2, 4)]), "
            "(FwdGrad, Tensor[Linear_subgraph(0)/weight popxl.dtypes.float32 (4, 3)]), "
            "(FwdGrad, Tensor[Linear_subgraph(0)/bias popxl.dtypes.float32 (3,)])]\n"
            "]");
  EXPECT_EQ(names(info.graph().outputs()),
            (Names{"Gradient___x", "Gradient___weight", "Gradient___bias"}));
  EXPECT_EQ(names(info.graph().inputs()), (Names{"Gradient___add_101", "weight", "x"}));
  check_gradients(info, random_inputs(forward));
}

TEST(Autodiff, OnlyTheRequiredGradientsAreComputed) {
  Ir ir;
  Graph& forward = linear(ir);
  const GradGraphInfo info =
      autodiff(forward, {.grads_required = Tensors{forward.input_named("bias")}});
  EXPECT_EQ(info.graph().ops().size(), 1u);
  EXPECT_EQ(info.expected_inputs().size(), 1u);
  check_gradients(info, random_inputs(forward));
}

TEST(Autodiff, ActivationsBecomeOutputsAndCallsFollow) {
  Ir ir;
  Graph& forward = ir.create_graph(
      "f", [](Graph&, Tensor x, Tensor w) { return ops::gelu(ops::matmul(x, w)); },
      NamedInput{"x", f32_spec({2, 4})}, NamedInput{"w", f32_spec({4, 3})});
  Graph& caller = ir.create_graph(
      "caller", [](Graph&, Tensor, Tensor) {}, f32_spec({2, 4}), f32_spec({4, 3}));
  const CallSiteInfo call = ops::call_with_info(caller, forward, caller.inputs());
  const Tensor out = forward.outputs()[0];
  const GradGraphInfo info = autodiff(forward);
  ASSERT_EQ(forward.outputs().size(), 2u);
  EXPECT_EQ(forward.outputs()[0], out);
  EXPECT_EQ(forward.original_outputs(), Tensors{out});
  ASSERT_EQ(call.outputs().size(), 2u);
  EXPECT_EQ(call.output(1).name(), "autodiff_output__t0");
  EXPECT_EQ(info.inputs_dict(call).size(), 3u);
  verify(ir);
  check_gradients(info, random_inputs(forward));
}

TEST(Autodiff, ViewsAreTakenAgainInsteadOfKept) {
  Ir ir;
  Graph& forward = ir.create_graph(
      "f",
      [](Graph&, Tensor x, Tensor w) {
        const Tensor h = ops::tanh(ops::matmul(ops::reshape(x, {2, 6}), w));
        return ops::matmul(ops::reshape(h, {3, 2}), ops::reshape(w, {2, 9}));
      },
      NamedInput{"x", f32_spec({2, 2, 3})}, NamedInput{"w", f32_spec({6, 3})});
  const GradGraphInfo info = autodiff(forward);
  EXPECT_EQ(forward.outputs().size(), 2u);  // Result and tanh's result.
  check_gradients(info, random_inputs(forward));
}

TEST(Autodiff, SumsTheGradientsOfEveryUse) {
  Ir ir;
  Graph& forward = ir.create_graph(
      "f",
      [](Graph& g, Tensor x, Tensor w) {
        const Tensor y = x * w + x;
        const Tensor z = ops::tanh(y) * y;
        g.add_output(z);
        g.add_output(y);  // An output with a further use.
        g.add_output(x);  // An input that is an output.
        g.add_output(z);  // A repeated output.
      },
      NamedInput{"x", f32_spec({3})}, NamedInput{"w", f32_spec({})});
  const GradGraphInfo info = autodiff(forward);

  check_gradients(info, random_inputs(forward));
}

TEST(Autodiff, PassedThroughGradientsAreTensorsOfTheirOwn) {
  Ir ir;
  Graph& forward = ir.create_graph(
      "f", [](Graph&, Tensor a, Tensor b) { return a + b; }, f32_spec({3}), f32_spec({3}));
  const GradGraphInfo info = autodiff(forward);
  const auto& outs = info.graph().output_ids();
  EXPECT_NE(outs[0], outs[1]);
  EXPECT_NE(outs[0], info.graph().input_ids()[0]);
  check_gradients(info, random_inputs(forward));
}

TEST(Autodiff, ConstantsAreMadeAnew) {
  Ir ir;
  Graph& forward = ir.create_graph(
      "f",
      [](Graph& g, Tensor x) {
        return x * g.constant(HostTensor::of<float>({2}, f32, {3, 5}), "scale");
      },
      f32_spec({2}));
  const GradGraphInfo info = autodiff(forward);
  EXPECT_EQ(info.expected_inputs().size(), 1u);
  check_gradients(info, random_inputs(forward));
}

TEST(Autodiff, ThroughCallsEachGraphOnce) {
  Ir ir;
  Graph& layer = ir.create_graph(
      "layer",
      [](Graph&, Tensor x, Tensor w, Tensor b) { return ops::gelu(ops::matmul(x, w) + b); },
      NamedInput{"x", f32_spec({2, 3})}, NamedInput{"w", f32_spec({3, 3})},
      NamedInput{"b", f32_spec({3})});
  Graph& pair = ir.create_graph(
      "pair",
      [&](Graph& g, Tensor x, Tensor w, Tensor b) {
        return ops::call(g, layer, {ops::call(g, layer, {x, w, b})[0], w, b});
      },
      NamedInput{"x", f32_spec({2, 3})}, NamedInput{"w", f32_spec({3, 3})},
      NamedInput{"b", f32_spec({3})});
  Graph& net = ir.create_graph(
      "net",
      [&](Graph& g, Tensor x, Tensor w, Tensor b, Tensor w2) {
        const Tensor h = ops::call(g, layer, {x, w, b})[0];
        return ops::matmul(ops::call(g, pair, {h, w, b})[0] + h, w2);
      },
      NamedInput{"x", f32_spec({2, 3})}, NamedInput{"w", f32_spec({3, 3})},
      NamedInput{"b", f32_spec({3})}, NamedInput{"w2", f32_spec({3, 2})});
  const int before = ir.graph_count();
  const GradGraphInfo info = autodiff(net);
  EXPECT_EQ(ir.graph_count(), before + 3);
  EXPECT_EQ(layer.outputs().size(), 2u);  // Result and gelu's input.
  check_gradients(info, random_inputs(net));
}

TEST(Autodiff, CalleesComputeOnlyWhatSomeCallNeeds) {
  Ir ir;
  Graph& layer = linear(ir);
  Graph& net = ir.create_graph(
      "net",
      [&](Graph& g, Tensor x, Tensor w, Tensor b) {
        return ops::call(g, layer, {x, w, b});
      },
      NamedInput{"x", f32_spec({2, 4})}, NamedInput{"w", f32_spec({4, 3})},
      NamedInput{"b", f32_spec({3})});
  const GradGraphInfo info = autodiff(net, {.grads_required = Tensors{net.input_named("w")}});
  const Graph& inner = ir.graph(info.graph().ops()[0].callees[0]);
  EXPECT_EQ(inner.output_ids().size(), 1u);
  EXPECT_EQ(inner.ops().size(), 1u);
  check_gradients(info, random_inputs(net));
}

TEST(Autodiff, GivenGradientGraphsAreUsed) {
  Ir ir;
  Graph& layer = linear(ir);
  const GradGraphInfo inner = autodiff(layer);
  Graph& net = ir.create_graph(
      "net",
      [&](Graph& g, Tensor x, Tensor w, Tensor b) {
        return ops::tanh(ops::call(g, layer, {x, w, b})[0]);
      },
      NamedInput{"x", f32_spec({2, 4})}, NamedInput{"w", f32_spec({4, 3})},
      NamedInput{"b", f32_spec({3})});
  const int before = ir.graph_count();
  const GradGraphInfo info = autodiff(net, {.called_graphs = {{layer.id(), inner}}});
  EXPECT_EQ(ir.graph_count(), before + 1);
  EXPECT_EQ(info.graph().ops().back().callees[0], inner.graph().id());
  check_gradients(info, random_inputs(net));
  EXPECT_NE(usage_error([&] {
              autodiff(net, {.called_graphs = {{net.id(), inner}}});
            }).find("called_graphs must map graph net"),
            std::string::npos);
}

class Conditional : public testing::TestWithParam<bool> {};

TEST_P(Conditional, BothBranchesGiveEveryGradient) {
  Ir ir;
  Graph& yes = ir.create_graph(
      "yes", [](Graph&, Tensor a, Tensor b) { return ops::tanh(a * b) * a; }, f32_spec({3}),
      f32_spec({3}));
  Graph& no = ir.create_graph(
      "no", [](Graph&, Tensor a) { return ops::gelu(a * 2.0); }, f32_spec({3}));
  Graph& net = ir.create_graph(
      "net",
      [&](Graph& g, Tensor c, Tensor x, Tensor y, Tensor z) {
        return ops::tanh(ops::conditional(g, c, yes, no, {x, ops::gelu(y)}, {x * z})[0]);
      },
      NamedInput{"c", {{}, boolean, {}}}, NamedInput{"x", f32_spec({3})},
      NamedInput{"y", f32_spec({3})}, NamedInput{"z", f32_spec({3})});
  const GradGraphInfo info = autodiff(net);
  std::vector<HostTensor> inputs = random_inputs(net);
  inputs[0] = HostTensor::of<bool>({}, boolean, {GetParam()});
  check_gradients(info, inputs);
}

INSTANTIATE_TEST_SUITE_P(Autodiff, Conditional, testing::Bool());

TEST(Autodiff, ConditionalWithOneDifferentiableBranch) {
  Ir ir;
  Graph& yes = ir.create_graph(
      "yes", [](Graph&, Tensor a) { return a * a; }, f32_spec({3}));
  Graph& no = ir.create_graph(
      "no", [](Graph&, Tensor a) { return ops::detach(a); }, f32_spec({3}));
  Graph& net = ir.create_graph(
      "net",
      [&](Graph& g, Tensor c, Tensor x) { return ops::conditional(g, c, yes, no, {x}, {x}); },
      NamedInput{"c", {{}, boolean, {}}}, NamedInput{"x", f32_spec({3})});
  const GradGraphInfo info = autodiff(net);
  std::vector<HostTensor> inputs = random_inputs(net);
  inputs[0] = HostTensor::of<bool>({}, boolean, {true});
  check_gradients(info, inputs);
}

TEST(Autodiff, TwiceGivesTheSameGraph) {
  Ir ir;
  Graph& layer = ir.create_graph(
      "layer", [](Graph&, Tensor x, Tensor w) { return ops::gelu(ops::matmul(x, w)); },
      NamedInput{"x", f32_spec({2, 3})}, NamedInput{"w", f32_spec({3, 3})});
  Graph& net = ir.create_graph(
      "net",
      [&](Graph& g, Tensor x, Tensor w) {
        return ops::tanh(ops::call(g, layer, {ops::call(g, layer, {x, w})[0], w})[0]);
      },
      NamedInput{"x", f32_spec({2, 3})}, NamedInput{"w", f32_spec({3, 3})});
  const GradGraphInfo first = autodiff(net);
  const std::string forward = print_schedule(net);
  const GradGraphInfo second = autodiff(net);
  EXPECT_EQ(print_schedule(net), forward);
  EXPECT_EQ(second.graph().name(), "net_subgraph(1)_bwd_1");
  EXPECT_EQ(first.inputs(), second.inputs());
  ASSERT_EQ(first.graph().ops().size(), second.graph().ops().size());
  for (size_t i = 0; i < first.graph().ops().size(); ++i) {
    EXPECT_EQ(first.graph().ops()[i].def, second.graph().ops()[i].def);
  }
  check_gradients(second, random_inputs(net));
}

TEST(Autodiff, OpsCarryDevicePathAndLineOfTheForwardOp) {
  Ir ir;
  Graph& forward = ir.create_graph(
      "f",
      [](Graph& g, Tensor x) {
        g.set_device(3);
        Graph::Scope scope(g, "fc1");
        return ops::gelu(x);
      },
      f32_spec({3}));
  const GradGraphInfo info = autodiff(forward);
  for (const Op& op : info.graph().ops()) {
    EXPECT_EQ(op.device, 3);
    EXPECT_EQ(op.provenance->module_path, "fc1");
    EXPECT_EQ(op.provenance->line, forward.ops()[0].provenance->line);
  }
}

TEST(GradGraphInfo, ParentTensorGivenTwiceGetsTheSum) {
  Ir ir;
  Graph& mul = ir.create_graph(
      "mul", [](Graph&, Tensor a, Tensor b) { return a * b; }, f32_spec({3}), f32_spec({3}));
  const GradGraphInfo info = autodiff(mul);
  Graph& step = ir.create_graph(
      "step",
      [&](Graph& g, Tensor x, Tensor dy) {
        const CallSiteInfo call = ops::call_with_info(g, mul, {x, x});
        const CallSiteInfo back =
            ops::call_with_info(g, info.graph(), {dy}, info.inputs_dict(call));
        EXPECT_EQ(info.fwd_graph_ins_to_grad_parent_outs(back).size(), 2u);
        const auto gradients = info.fwd_parent_ins_to_grad_parent_outs(call, back);
        EXPECT_EQ(gradients.size(), 1u);
        return gradients.at(x);
      },
      f32_spec({3}), f32_spec({3}));
  const auto result = Interpreter(ir).evaluate(step, {HostTensor::of<float>({3}, f32, {1, 2, 3}),
                                                      HostTensor::of<float>({3}, f32, {1, 1, 2})});
  EXPECT_EQ(result[0].to_doubles(), (std::vector<double>{2, 4, 12}));
}

TEST(GradGraphInfo, RefusesOverwrittenParentsAndOtherCalls) {
  Ir ir;
  Graph& mul = ir.create_graph(
      "mul", [](Graph&, Tensor a, Tensor b) { return a * b; }, f32_spec({3}), f32_spec({3}));
  const GradGraphInfo info = autodiff(mul);
  ir.create_graph(
      "step",
      [&](Graph& g, Tensor x) {
        const Tensor w = x + x;
        const CallSiteInfo call = ops::call_with_info(g, mul, {x, w});
        ops::add_(w, x);
        const std::string error = usage_error([&] { info.inputs_dict(call); });
        EXPECT_NE(error.find("needs tensor 'add_"), std::string::npos) << error;
        EXPECT_NE(error.find("AddLhsInplace."), std::string::npos) << error;
        const CallSiteInfo back = ops::call_with_info(g, info.graph(), {x, x, x});
        EXPECT_NE(
            usage_error([&] {
              info.inputs_dict(back);
            }).find("the call must be of graph mul_subgraph(0), got a call of mul_subgraph(0)_bwd"),
            std::string::npos);
        EXPECT_NE(
            usage_error([&] {
              info.fwd_graph_ins_to_grad_parent_outs(call);
            }).find("the call must be of graph mul_subgraph(0)_bwd, got a call of mul_subgraph(0)"),
            std::string::npos);
      },
      f32_spec({3}));
}

TEST(ValueAndGrad, TakesOneCall) {
  Ir ir;
  // Σ x²·y. The integer n is not differentiated; z does not matter.
  Graph& f = ir.create_graph(
      "f", [](Graph&, Tensor x, Tensor y, Tensor, Tensor) { return ops::sum(x * x * y); },
      f32_spec({3}), f32_spec({3}), TensorSpec{{}, i32}, f32_spec({2}));
  Graph& caller = ir.create_empty_graph("caller");
  const Tensor x = caller.input(f32_spec({3}), "x");
  const Tensor y = caller.input(f32_spec({3}), "y");
  const Tensor n = caller.input({{}, i32}, "n");
  const Tensor z = caller.input(f32_spec({2}), "z");
  const ValueAndGrad at = value_and_grad(f, {x, y, n, z});
  ASSERT_EQ(at.grads.size(), 4u);
  EXPECT_FALSE(at.grads[2].valid());
  // A second call makes a gradient graph of its own.
  const ValueAndGrad swapped = value_and_grad(f, {y, x, n, z});
  caller.set_outputs({at.value, at.grads[0], at.grads[1], at.grads[3], swapped.grads[0]});
  const auto floats = [](const std::vector<float>& v) {
    return HostTensor::of<float>({static_cast<int64_t>(v.size())}, f32, v);
  };
  const auto got =
      Interpreter(ir).evaluate(caller, {floats({1, 2, 3}), floats({4, 5, 6}),
                                        HostTensor::of<int32_t>({}, i32, {7}), floats({8, 9})});
  using Doubles = std::vector<double>;
  EXPECT_EQ(got[0].to_doubles(), Doubles{4 + 20 + 54});
  EXPECT_EQ(got[1].to_doubles(), (Doubles{8, 20, 36}));
  EXPECT_EQ(got[2].to_doubles(), (Doubles{1, 4, 9}));
  EXPECT_EQ(got[3].to_doubles(), (Doubles{0, 0}));
  EXPECT_EQ(got[4].to_doubles(), (Doubles{8, 20, 36}));
}

TEST(ValueAndGrad, RefusesFunctionsWithoutALoss) {
  Ir ir;
  Graph& f = ir.create_graph(
      "f", [](Graph&, Tensor x) { return x * x; }, f32_spec({3}));
  Graph& main = ir.main_graph();
  const Tensor x = main.variable(HostTensor(f32_spec({3})), "x");
  const auto error = [&](const Tensors& inputs) {
    try {
      value_and_grad(f, inputs);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(error({x}),
            "value_and_grad: graph f_subgraph(0) must have one floating-point output of one "
            "element, got (3,) float32");
  f.set_outputs({});
  EXPECT_NE(error({x}).find("got 0 outputs"), std::string::npos);
  f.set_outputs({ops::sum(f.inputs()[0])});
  EXPECT_NE(error({}).find("requires at least one input"), std::string::npos);
}

}  // namespace
}  // namespace sluice::transforms
