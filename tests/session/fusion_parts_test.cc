// As fusion_test.cc, for activations that share work with their gradients, reductions in their
// producers' kernels, and ops that are decomposed.

#include "fusion_program.h"

namespace sluice::test {
namespace {

/// Returns the number of kernels with a stage of this type.
int kernels_with(const exe::Executable& executable, const std::string& op) {
  int count = 0;
  for (const exe::Function& f : executable.functions) {
    for (const exe::Step& step : f.steps) {
      const auto* const kernel = std::get_if<exe::Kernel>(&step.body);
      if (kernel == nullptr) continue;
      count += kernel->op == op || std::any_of(kernel->stages.begin(), kernel->stages.end(),
                                               [&](const exe::Stage& s) { return s.op == op; });
    }
  }
  return count;
}

class Parts : public Fusion {
 protected:
  int kernels(const std::string& op) {
    return kernels_with(property::compiled(program.ir, 1).executable, op);
  }
};

class SharedWork : public Parts {
 protected:
  // Stores f(x) and the gradient of sum(f(x)·c), where `make` builds f.
  void differentiate(const std::function<Tensor(Graph&, Tensor)>& make, const Shape& shape) {
    Graph& forward = program.ir.create_graph(
        "f", [&](Graph& g, Tensor x) { return make(g, x); }, f32_spec(shape));
    const auto info = transforms::autodiff(forward);
    // A computed operand: nothing else keeps it in memory.
    const Tensor x = input(shape) * 0.75;
    const CallSiteInfo call = ops::call_with_info(main, forward, {x});
    const Tensor g = input(call.output(0).shape());
    const CallSiteInfo back = ops::call_with_info(main, info.graph(), {g}, info.inputs_dict(call));
    show(call.output(0));
    show(back.output(0));
  }
};

TEST_F(SharedWork, OfEachActivation) {
  using Activation = Tensor (*)(TensorArg);
  for (const Activation f :
       {Activation{ops::gelu}, Activation{ops::gelu_erf}, Activation{ops::swish}})
    differentiate([&](Graph&, Tensor x) { return f(x); }, {5, 33});
  check();
  for (const char* slope : {"GeluSlope", "GeluErfSlope", "SwishSlope"})
    EXPECT_EQ(kernels(slope), 1);
  for (const char* grad : {"GeluGrad", "GeluErfGrad", "SwishGrad"}) EXPECT_EQ(kernels(grad), 0);
}

TEST_F(SharedWork, NotWhereSomethingElseReadsTheOperand) {
  differentiate([](Graph&, Tensor x) { return ops::gelu(x) + x * 2.0; }, {4, 20});
  differentiate([](Graph&, Tensor x) { return ops::gelu(x) * ops::gelu(x); }, {4, 20});
  check();
  EXPECT_EQ(kernels("GeluSlope"), 0);
}

TEST_F(SharedWork, NotWhereTheOperandIsOverwritten) {
  const Tensor x = input({6, 18}) + 0.5;
  const Tensor y = ops::gelu(x);
  show(y);
  ops::add_(x, y);
  show(ops::gelu(x));
  show(x);
  check();
  EXPECT_EQ(kernels("GeluSlope"), 0);
}

TEST_F(SharedWork, OfActivationsOfActivations) {
  differentiate([](Graph&, Tensor x) { return ops::swish(ops::gelu(ops::gelu_erf(x))); }, {3, 40});
  check();
  EXPECT_EQ(kernels("GeluSlope"), 1);
}

TEST_F(SharedWork, AfterAProductOfABatch) {
  const Tensor w = variable({24, 40}, "w");
  Graph& forward = program.ir.create_graph(
      "f", [&](Graph&, Tensor x, Tensor v) { return ops::gelu(ops::matmul(x, v)); },
      f32_spec({3, 5, 24}), w.spec());
  const auto info = transforms::autodiff(forward);
  const CallSiteInfo call = ops::call_with_info(main, forward, {input({3, 5, 24}), w});
  const CallSiteInfo back =
      ops::call_with_info(main, info.graph(), {input({3, 5, 40})}, info.inputs_dict(call));
  show(call.output(0));
  show(back.output(0));
  ops::scaled_add_(w, back.output(1), 1.0, -0.125);
  const Effect effect = check();
  EXPECT_EQ(effect.layouts.at("w"), "panels32");
  EXPECT_EQ(kernels("GeluSlope"), 1);
}

class Reductions : public Parts {};

TEST_F(Reductions, OfEverySideOfAChain) {
  const Tensor x = input({37, 65}), y = input({37, 65});
  const Tensor d = ops::relu(x - y);
  show(ops::sum(d, {.axes = {0}}));
  const Tensor e = x * y;
  show(ops::mean(e, {.axes = {1}, .keepdims = true}));
  show(ops::l2(ops::tanh(x) + y));
  show(ops::max(ops::exp(x), {.axes = {0}, .keepdims = true}));
  EXPECT_GE(check().fused, 3);
}

TEST_F(Reductions, OfAProductWhoseResultOthersRead) {
  const Tensor x = input({40, 24});
  const Tensor w = variable({24, 50}, "w");
  const Tensor b = variable({50}, "b");
  const Tensor y = ops::relu(ops::matmul(x, w) + b);
  const Tensor db = ops::sum(y, {.axes = {0}});
  const Tensor dw = ops::matmul(x, y, kOfTransposed);
  ops::scaled_add_(b, db, 1.0, -0.125);
  ops::scaled_add_(w, dw, 1.0, -0.125);
  show(ops::matmul(y, w, kByTransposed));
  show(db);
  EXPECT_GE(check().max, 4);
}

TEST_F(Reductions, ThatAreOverwrittenOrFeedTheirOwnSource) {
  const Tensor x = input({8, 48});
  const Tensor y = ops::tanh(x * 0.5);
  Tensor s = ops::sum(y, {.axes = {1}, .keepdims = true});
  show(y / (s + 2.0));  // As in a softmax: the reader of the sum also reads its source.
  ops::add_(s, s);
  show(s);
  const Tensor z = ops::sum(ops::relu(y) - s, {.axes = {0}});
  show(z + z);
  check();
}

TEST_F(Reductions, OfLongRowsAndManyBlocks) {
  const Tensor x = input({3, 5000}), y = input({3, 5000});
  show(ops::sum(x * y, {.axes = {1}}));
  show(ops::sumsquare(x - y));
  const Tensor tall = input({700, 33});
  show(ops::l1(tall * 3.0, {.axes = {0}}));
  check();
}

// Large reductions to one element run as one task per chunk.
TEST_F(Reductions, OfManyElementsToOne) {
  const Tensor x = input({130, 521});
  using Reduce = Tensor (*)(TensorArg, const ops::ReduceOptions&);
  for (const Reduce reduce : {ops::sum, ops::mean, ops::max, ops::min, ops::prod, ops::l1, ops::l2,
                              ops::sumsquare, ops::logsum}) {
    show(reduce(x, {}));
    show(reduce(x, {.axes = {1, 0}, .keepdims = true}));
  }
  show(ops::sum(ops::relu(x)));
  show(ops::sum(x, {.axes = {0}}));
  check();
  EXPECT_EQ(kernels("ReduceChunks"), 17);
}

// --- losses

class Losses : public Parts {
 protected:
  // Labels for `classes` classes. The last label is not a class.
  Tensor labels(int64_t samples, int32_t classes) {
    std::vector<int32_t> values;
    for (int32_t i = 0; i < samples; ++i) values.push_back(i * 7 % classes);
    values.back() = -1;
    return main.variable(HostTensor::of<int32_t>({samples}, i32, values), "labels");
  }
  // Returns the op types of the kernel that has a stage of this type.
  std::string kernel_of(const std::string& op) {
    const Compiled compiled = property::compiled(program.ir, 1);
    for (const exe::Step& step : compiled.executable.functions.back().steps) {
      const auto* const kernel = std::get_if<exe::Kernel>(&step.body);
      if (kernel != nullptr && kernel->op.find(op) != std::string::npos) return kernel->op;
    }
    return "";
  }
};

TEST_F(Losses, WithTheirGradientAreOneKernelFromTheProductOn) {
  const Tensor x = input({9, 24});
  const Tensor w = variable({24, 10}, "w");
  const Tensor b = variable({10}, "b");
  const auto [loss, dx] =
      ops::cross_entropy_with_grad(ops::matmul(x, w) + b, labels(9, 10),
                                   {.has_ignore_index = true, .ignore_index = -1, .loss_grad = 2});
  show(loss);
  ops::scaled_add_(b, ops::sum(dx, {.axes = {0}}), 1.0, -0.5);
  ops::scaled_add_(w, ops::matmul(x, dx, kOfTransposed), 1.0, -0.5);
  check();
  EXPECT_EQ(kernel_of("Softmax"), "MatMul+Add+Softmax+Nll+NllTotal+NllSoftmaxGrad+ReduceSum");
}

TEST_F(Losses, OfEachReduction) {
  for (const auto reduction :
       {ops::LossReduction::kMean, ops::LossReduction::kSum, ops::LossReduction::kNone}) {
    const Tensor y = ops::softmax(input({6, 17}) * 3.0);
    const auto [loss, dx] =
        ops::nll_loss_with_softmax_grad(y, labels(6, 17), {.reduction = reduction});
    show(loss);
    show(dx);
    if (reduction == ops::LossReduction::kSum) show(y);
  }
  check();
  EXPECT_EQ(kernels("Softmax"), 3);
  EXPECT_EQ(kernels("NlllWithSoftmaxGradDirect"), 0);
}

TEST_F(Losses, OfManyClassesAreRowsOfSeveralTasks) {
  const Tensor logits = input({40, 3000});
  const auto [loss, dx] = ops::cross_entropy_with_grad(logits, labels(40, 3000));
  show(loss);
  show(dx);
  check();
  EXPECT_EQ(kernel_of("Softmax"), "Softmax+Nll+NllSoftmaxGrad");
  EXPECT_EQ(kernel_of("NllTotal"), "NllTotal");
}

TEST_F(Losses, OnlyWhatIsUsedIsComputed) {
  const auto [loss, unused] = ops::cross_entropy_with_grad(input({7, 20}), labels(7, 20));
  const auto [none, dx] = ops::cross_entropy_with_grad(input({7, 21}), labels(7, 20));
  show(loss);
  show(dx);
  check();
  EXPECT_EQ(kernels("NllTotal"), 1);
  EXPECT_EQ(kernels("NllSoftmaxGrad"), 1);
}

TEST_F(Losses, OfAutodiffAreOneKernelFromTheLogarithmsOn) {
  Graph& forward = program.ir.create_graph(
      "f",
      [](Graph&, Tensor x, Tensor labels) {
        return ops::cross_entropy(x, labels, {.has_ignore_index = true, .ignore_index = -1});
      },
      f32_spec({8, 12}), i32_spec({8}));
  const auto info = transforms::autodiff(forward);
  const Tensor x = input({8, 12}) * 2.0;
  const CallSiteInfo call = ops::call_with_info(main, forward, {x, labels(8, 12)});
  const CallSiteInfo back =
      ops::call_with_info(main, info.graph(), {main.scalar(1, f32)}, info.inputs_dict(call));
  show(call.output(0));
  show(back.output(0));
  check();
  EXPECT_EQ(kernel_of("Softmax"), "Mul+LogSoftmax+Nll+NllTotal+NllGrad+LogSoftmaxGrad");
}

TEST_F(Losses, AreLeftAloneWithoutASoftmax) {
  const Tensor given = input({5, 9});
  show(ops::nll_loss(given, labels(5, 9), {.log_prob = true}));
  check();
  EXPECT_EQ(kernels("NllTotal"), 0);
}

// Attention: scores are scaled and masked before the softmax, weights are scaled after it.
TEST_F(Losses, RowsAmongElementwiseOps) {
  const Tensor scores = input({3, 11, 19});
  const Tensor mask = input({11, 19});
  const Tensor dy = input({3, 11, 19});
  const Tensor y = ops::softmax(scores * 0.25 + ops::abs(dy));
  show(y * 1.5);
  show(ops::softmax(scores + mask));
  show(ops::relu(scores) - ops::softmax(scores) * dy);
  check();
  EXPECT_EQ(kernels("Softmax"), 3);
}

}  // namespace
}  // namespace sluice::test
