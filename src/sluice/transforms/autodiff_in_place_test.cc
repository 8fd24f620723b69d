#include "sluice/ops/activations.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/basic.h"
#include "sluice/ops/concat.h"
#include "sluice/ops/matmul.h"
#include "sluice/ops/reductions.h"
#include "sluice/ops/reshape.h"
#include "sluice/ops/slice.h"
#include "sluice/ops/transpose.h"
#include "sluice/ops/updates.h"
#include "sluice/transforms/loops/loops.h"
#include "tests/support/gradient_check.h"

namespace sluice::transforms {
namespace {

// Returns a view of the first half of a vector, in the same storage.
Tensor head_(const Tensor& t) {
  static const OpDef def = [] {
    OpDef d;
    d.type = d.name = "HeadInplace";
    d.inputs = {{"x"}};
    d.outputs = {"y"};
    d.aliases = {{0, 0}};
    d.infer = [](const OpView& op) {
      return std::vector<TensorSpec>{f32_spec({op.input(0).shape[0] / 2})};
    };
    d.grad = [](GradContext& g) { return Tensors{ops::concat({g.grad(0), g.grad(0) * 0.0}, 0)}; };
    return d;
  }();
  return ops::emit_one(def, {t});
}

TEST(AutodiffInPlace, OpsThatReadTheirOutput) {
  Ir ir;
  Graph& forward = ir.create_graph(
      "f",
      [](Graph&, Tensor x, Tensor b) {
        Tensor y = x * x;
        y += b;
        return ops::exp_(ops::relu_(y) * b);
      },
      f32_spec({3}), f32_spec({}));
  const GradGraphInfo info = autodiff(forward);
  check_gradients(info, random_inputs(forward));
}

TEST(AutodiffInPlace, OpsThatReadWhatTheyOverwriteWorkOnACopy) {
  Ir ir;
  Graph& forward = ir.create_graph(
      "f", [](Graph&, Tensor x, Tensor w) { return ops::swish_(ops::gelu_(x * w)) * w; },
      f32_spec({3}), f32_spec({3}));
  const size_t ops_before = forward.ops().size();
  const GradGraphInfo info = autodiff(forward);
  EXPECT_EQ(forward.ops().size(), ops_before + 2);
  EXPECT_EQ(forward.outputs().size(), 4u);  // Result, two copies, and swish's result.
  check_gradients(info, random_inputs(forward));
  // The second call finds the existing copies.
  const size_t ops_after = forward.ops().size();
  const GradGraphInfo again = autodiff(forward);
  EXPECT_EQ(forward.ops().size(), ops_after);
  EXPECT_EQ(forward.outputs().size(), 4u);
  check_gradients(again, random_inputs(forward));
}

TEST(AutodiffInPlace, ThroughViewsOfParts) {
  Ir ir;
  Graph& forward = ir.create_graph(
      "f",
      [](Graph&, Tensor x, Tensor w) {
        const Tensor y = x * x;
        const Tensor transposed = ops::transpose_(y);
        ops::add_(ops::slice_(transposed, {1}, {3}), w);
        const Tensor joined = ops::concat_({y, ops::exp(x)});
        ops::add_(y, x);
        return ops::tanh(joined) + ops::sum(transposed * transposed);
      },
      f32_spec({2, 3}), f32_spec({2, 2}));
  check_gradients(autodiff(forward), random_inputs(forward));
}

TEST(AutodiffInPlace, ByValueInputsKeepTheirFirstValue) {
  Ir ir;
  Graph& forward = ir.create_graph(
      "f", [](Graph&, Tensor x) { return ops::gelu_(x) * x; }, f32_spec({3}));
  const GradGraphInfo info = autodiff(forward);
  check_gradients(info, random_inputs(forward));
}

TEST(AutodiffInPlace, OldHandlesSeeTheNewValue) {
  Ir ir;
  Graph& forward = ir.create_graph(
      "f",
      [](Graph&, Tensor x, Tensor w) {
        const Tensor y = x * w;
        const Tensor before = ops::tanh(y);
        ops::add_(y, x);
        return ops::tanh(y) * before;
      },
      f32_spec({3}), f32_spec({3}));
  const GradGraphInfo info = autodiff(forward);
  check_gradients(info, random_inputs(forward));
}

TEST(AutodiffInPlace, ViewsThatShareStorage) {
  Ir ir;
  Graph& forward = ir.create_graph(
      "f",
      [](Graph&, Tensor x, Tensor w) {
        const Tensor y = x * x;
        const Tensor flat = ops::reshape_(y, {6});
        const Tensor first = ops::tanh(flat);
        ops::add_(flat, w);                                        // Also changes y.
        const Tensor z = ops::matmul(y, ops::reshape(y, {3, 2}));  // Reads the sum.
        ops::relu_(ops::add_(y, y * y));
        return ops::sum(z) + ops::sum(first * flat);
      },
      f32_spec({2, 3}), f32_spec({6}));
  const std::string error =
      usage_error([&] { autodiff(forward); });  // Gradients read y, which relu_ overwrites.
  EXPECT_NE(error.find("overwrites it"), std::string::npos) << error;

  Graph& allowed = ir.create_graph(
      "f",
      [](Graph&, Tensor x, Tensor w) {
        const Tensor y = x * x;
        const Tensor flat = ops::reshape_(y, {6});
        const Tensor first = ops::tanh(flat);
        ops::add_(flat, w);
        const Tensor z = ops::matmul(y, ops::reshape(y, {3, 2}));
        return ops::sum(z) + ops::sum(first * flat);
      },
      f32_spec({2, 3}), f32_spec({6}));
  const GradGraphInfo info = autodiff(allowed);
  check_gradients(info, random_inputs(allowed));
}

TEST(AutodiffInPlace, ViewsOfAPart) {
  Ir ir;
  Graph& reads = ir.create_graph(
      "reads",
      [](Graph&, Tensor x) {
        const Tensor y = x * x;
        return head_(x) * head_(y);
      },
      f32_spec({4}));
  const GradGraphInfo info = autodiff(reads);
  verify(ir);
  EXPECT_EQ(reads.outputs().size(), 2u);  // Result and y's head.
  std::vector<std::string> types;
  for (const Op& op : info.graph().ops()) types.push_back(op.def->type);
  EXPECT_EQ(types, (std::vector<std::string>{"Mul", "HeadInplace", "Mul", "Mul", "Concat", "Mul",
                                             "Concat", "Mul", "Mul", "Add", "Add"}));

  Graph& writes = ir.create_graph(
      "writes",
      [](Graph&, Tensor x) {
        const Tensor y = x * x;
        ops::exp_(head_(y));
        return y;
      },
      f32_spec({4}));
  std::string error = usage_error([&] { autodiff(writes); });
  EXPECT_NE(error.find("a view of a part of another tensor, which has no gradient"),
            std::string::npos)
      << error;
  error = usage_error([&] {
    autodiff(reads, {.grads_required = Tensors{reads.handle(reads.ops()[1].outputs[0])}});
  });
  EXPECT_NE(
      error.find("is a view of a part of another tensor; require the gradient of the whole tensor"),
      std::string::npos)
      << error;
}

// The loop reads a part of w before w itself, and a later op reads w, too.
TEST(AutodiffInPlace, ALoopReadsAPartAndItsWhole) {
  Ir ir;
  Graph& body = ir.create_empty_graph("body");
  const Tensor carried = body.input(f32_spec({2}), "carried");
  const Tensor part = body.input(f32_spec({2}), "part");
  const Tensor whole = body.input(f32_spec({4}), "whole");
  body.set_outputs({ops::tanh(carried * part + ops::sum(whole))});
  Graph& g = ir.create_empty_graph("g");
  const Tensor first = g.input(f32_spec({2}), "first");
  const Tensor w = g.input(f32_spec({4}), "w");
  const Tensor last = ops::repeat(g, body, 3, {first}, {{part, head_(w)}, {whole, w}})[0];
  g.set_outputs({ops::sum(last) * w});
  const GradGraphInfo info = autodiff(g);
  // The gradient of w is the sum of that of the loop's whole w and that of its part.
  const Graph& backward = info.graph();
  for (size_t k = 0; k < info.expected_outputs().size(); ++k) {
    if (info.expected_outputs()[k].fwd_tensor != w) continue;
    const Op& total = backward.op(backward.info(backward.output_ids()[k]).producer);
    ASSERT_EQ(total.def->name, "add");
    const auto producer = [&](size_t i) {
      return backward.op(backward.info(total.inputs[i].tensor).producer).def->name;
    };
    EXPECT_EQ(producer(0), "repeat");
    EXPECT_EQ(producer(1), "concat");
  }
}

TEST(AutodiffInPlace, OverwrittenValueIsAnErrorAndChangesNothing) {
  Ir ir;
  Graph& forward = ir.create_graph(
      "f",
      [](Graph&, Tensor x, Tensor w) {
        const Tensor y = x + w;
        const Tensor z = y * w;
        ops::add_(y, w);
        return z + y;
      },
      f32_spec({3}), f32_spec({3}));
  const int graphs = ir.graph_count();
  const std::string error = usage_error([&] { autodiff(forward); });
  EXPECT_NE(error.find("the gradient of Mul.101 (autodiff_in_place_test.cc:"), std::string::npos)
      << error;
  EXPECT_NE(error.find("needs tensor 'add_100'"), std::string::npos) << error;
  EXPECT_NE(error.find("AddLhsInplace.102 (autodiff_in_place_test.cc:"), std::string::npos)
      << error;
  EXPECT_EQ(ir.graph_count(), graphs);
  EXPECT_EQ(forward.outputs().size(), 1u);
  EXPECT_EQ(forward.ops().size(), 4u);
  verify(ir);
  // The gradient of x alone does not read the overwritten tensor.
  check_gradients(autodiff(forward, {.grads_required = Tensors{forward.inputs()[0]}}),
                  random_inputs(forward));
}

TEST(AutodiffInPlace, CopiesPassTheGradientToTheirSource) {
  Ir ir;
  Graph& forward = ir.create_graph(
      "f",
      [](Graph&, Tensor x, Tensor w) {
        const Tensor y = ops::identity(x);
        ops::copy_var_update_(y, w);
        return y * x;
      },
      f32_spec({3}), f32_spec({3}));
  check_gradients(autodiff(forward), random_inputs(forward));
}

// An update without a gradient is refused, but only if a gradient would pass through it.
TEST(AutodiffInPlace, UpdatesWithoutAGradientAreRefused) {
  Ir ir;
  Graph& forward = ir.create_graph(
      "f",
      [](Graph&, Tensor x, Tensor w) {
        const Tensor y = ops::identity(x);
        const Tensor average = ops::identity(x);
        ops::scaled_add_(average, w, 0.5, 0.5);
        const Tensors outputs{x * w, ops::scaled_add_(y, w, 0.5, 0.5)};
        return outputs;
      },
      f32_spec({3}), f32_spec({3}));
  check_gradients(autodiff(forward, {.grads_provided = Tensors{forward.outputs()[0]}}),
                  random_inputs(forward));
  EXPECT_NE(usage_error([&] { autodiff(forward); })
                .find("has no gradient with respect to its operand x, and that of 'identity_100' "
                      "would pass it"),
            std::string::npos);
}

TEST(AutodiffInPlace, DetachedViewsBlock) {
  Ir ir;
  Graph& forward = ir.create_graph(
      "f", [](Graph&, Tensor x, Tensor w) { return ops::detach_(x * w) * w; }, f32_spec({3}),
      f32_spec({3}));
  const GradGraphInfo info = autodiff(forward, {.grads_required = Tensors{forward.inputs()[1]},
                                                .unreachable = Unreachable::kZeros});
  Graph& step = gradient_step(info);
  const auto x = HostTensor::of<float>({3}, f32, {1, 2, 3});
  const auto w = HostTensor::of<float>({3}, f32, {4, 5, 6});
  const auto dy = HostTensor::of<float>({3}, f32, {1, 1, 1});
  EXPECT_EQ(Interpreter(ir).evaluate(step, {x, w, dy})[0].to_doubles(),
            (std::vector<double>{4, 10, 18}));
}

TEST(AutodiffInPlace, ReferencesThatTheCalleeLeavesAlone) {
  Ir ir;
  Graph& inner = ir.create_graph(
      "inner", [](Graph&, Tensor a, Tensor w) { return ops::tanh(a * w); }, f32_spec({3}),
      NamedInput{"w", f32_spec({3}), Pass::kByReference});
  Graph& middle = ir.create_graph(
      "middle",
      [&](Graph& g, Tensor a, Tensor w) {
        return ops::call(g, inner, {a, w})[0] * w;
      },
      f32_spec({3}), NamedInput{"w", f32_spec({3}), Pass::kByReference});
  Graph& forward = ir.create_graph(
      "f",
      [&](Graph& g, Tensor x) {
        const Tensor w = x * x;
        return ops::call(g, middle, {ops::call(g, middle, {x, w})[0], w})[0] + w;
      },
      f32_spec({3}));
  const GradGraphInfo info = autodiff(forward);
  check_gradients(info, random_inputs(forward));
}

TEST(AutodiffInPlace, ReferencesThatTheCalleeWrites) {
  Ir ir;
  Graph& inner = ir.create_graph(
      "inner",
      [](Graph&, Tensor a, Tensor state) {
        ops::add_(state, a);
        return ops::tanh(a);
      },
      f32_spec({3}), NamedInput{"state", f32_spec({3}), Pass::kByReference});
  Graph& counts = ir.create_graph(
      "counts",
      [&](Graph& g, Tensor x, Tensor state) {
        return ops::call(g, inner, {x, state});
      },
      f32_spec({3}), NamedInput{"state", f32_spec({3}), Pass::kByReference});
  check_gradients(autodiff(counts, {.grads_required = Tensors{counts.inputs()[0]}}),
                  random_inputs(counts));

  Graph& reads = ir.create_graph(
      "reads",
      [&](Graph& g, Tensor x) {
        const Tensor state = x * x;
        return ops::call(g, inner, {x, state})[0] + state;
      },
      f32_spec({3}));
  const std::string error = usage_error([&] { autodiff(reads); });
  EXPECT_NE(error.find("which writes to it by reference"), std::string::npos) << error;
}

}  // namespace
}  // namespace sluice::transforms
