// Gradient rules that add ops to the forward graph (GradContext::forward).
#include "sluice/base/provenance.h"
#include "sluice/ir/ir.h"
#include "sluice/ops/activations.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/basic.h"
#include "tests/support/gradient_check.h"

namespace sluice::transforms {
namespace {

template <typename T>
void cube_kernel(const KernelArgs& k) {
  const auto x = k.in<T>(0);
  const auto y = k.out<T>(0);
  for (size_t i = 0; i < x.size(); ++i) y[i] = x[i] * x[i] * x[i];
}

// This rule keeps 3x² instead of x.
Tensors cube_grad(GradContext& g) {
  return {g.grad(0) *
          g.forward([](const Tensors& in, const Tensors&) { return in[0] * in[0] * 3.0; })};
}

const OpDef& cube(Mode mode) {
  static const auto make = [](Mode m) {
    OpDef d;
    d.type = m == Mode::kRead ? "Cube" : "CubeInplace";
    d.name = m == Mode::kRead ? "cube" : "cube_";
    d.inputs = {{"x", m}};
    d.outputs = {"y"};
    if (m != Mode::kRead) d.aliases = {{0, 0}};
    d.infer = [](const OpView& op) { return std::vector<TensorSpec>{op.input(0)}; };
    d.grad = cube_grad;
    d.reference_float = cube_kernel<float>;
    d.reference_double = cube_kernel<double>;
    return d;
  };
  static const OpDef plain = make(Mode::kRead);
  static const OpDef updating = make(Mode::kUpdate);
  return mode == Mode::kRead ? plain : updating;
}

TEST(AutodiffForward, KeepsTheResultNextToTheOp) {
  Ir ir;
  Graph& f = ir.create_graph(
      "f",
      [](Graph&, Tensor x, Tensor w) {
        const Tensor y = ops::emit_one(cube(Mode::kRead), {x * w});
        return ops::tanh(y + w);
      },
      f32_spec({3}), f32_spec({3}));
  const GradGraphInfo info = autodiff(f);
  std::vector<std::string> order;
  for (const Op& op : f.ops()) order.push_back(op.def->type);
  EXPECT_EQ(order, (std::vector<std::string>{"Mul", "Cube", "Mul", "Mul", "Add", "Tanh"}));
  EXPECT_EQ(f.ops()[2].provenance->line, f.ops()[1].provenance->line);
  EXPECT_EQ(f.outputs().size(), 2u);
  check_gradients(info, random_inputs(f));
  const std::string forward = print_schedule(f);
  check_gradients(autodiff(f), random_inputs(f));
  EXPECT_EQ(print_schedule(f), forward);
}

TEST(AutodiffForward, InPlaceOpsComputeItBeforeTheyWrite) {
  Ir ir;
  Graph& f = ir.create_graph(
      "f",
      [](Graph&, Tensor x, Tensor w) {
        const Tensor y = ops::emit_one(cube(Mode::kUpdate), {x * w});
        ops::emit_one(cube(Mode::kUpdate), {y});
        return y + w;
      },
      f32_spec({3}), f32_spec({3}));
  const GradGraphInfo info = autodiff(f);
  std::vector<std::string> order;
  for (const Op& op : f.ops()) order.push_back(op.def->type);
  EXPECT_EQ(order, (std::vector<std::string>{"Mul", "Mul", "Mul", "CubeInplace", "Mul", "Mul",
                                             "CubeInplace", "Add"}));
  check_gradients(info, random_inputs(f));
  const std::string forward = print_schedule(f);
  check_gradients(autodiff(f), random_inputs(f));
  EXPECT_EQ(print_schedule(f), forward);
}

TEST(AutodiffForward, NothingIsAddedForGradientsThatNobodyNeeds) {
  Ir ir;
  Graph& f = ir.create_graph(
      "f",
      [](Graph&, Tensor x, Tensor w) {
        return ops::emit_one(cube(Mode::kRead), {ops::detach(x)}) * w;
      },
      f32_spec({3}), f32_spec({3}));
  autodiff(f, {.grads_required = Tensors{f.inputs()[1]}});
  EXPECT_EQ(f.ops().size(), 3u);
  verify(ir);
}

}  // namespace
}  // namespace sluice::transforms
