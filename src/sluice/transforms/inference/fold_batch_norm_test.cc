#include "sluice/transforms/inference/fold_batch_norm.h"

#include "sluice/ops/activations.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/conv.h"
#include "sluice/ops/normalization.h"
#include "sluice/ops/reductions.h"
#include "sluice/ops/reshape.h"
#include "tests/support/gradient_check.h"

namespace sluice::transforms {
namespace {

constexpr int64_t kChannels = 6;

/// A graph with inputs x, w, bias of the conv, and weight, bias, mean and variance of the norm.
template <typename Body>
Graph& network(Ir& ir, Body body) {
  const TensorSpec channel = f32_spec({kChannels});
  return ir.create_graph("network", body, f32_spec({2, 4, 5, 5}), f32_spec({kChannels, 2, 3, 3}),
                         channel, channel, channel, channel, channel);
}

std::vector<HostTensor> arrays(const Graph& graph) {
  std::vector<HostTensor> all = random_inputs(graph);
  for (double& v : all.back().as<double>()) v = 0.25 + v * v;  // The variance is positive.
  return all;
}

int64_t count(const Graph& graph, const char* type) {
  return std::count_if(graph.ops().begin(), graph.ops().end(),
                       [&](const Op& op) { return op.def->type == type; });
}

/// Folds and returns the number of norms folded. Checks that the values stay.
int fold(Ir& ir, Graph& graph) {
  const std::vector<HostTensor> inputs = arrays(graph);
  const auto before = Interpreter(ir, Precision::kDouble).evaluate(graph, inputs);
  const int folded = fold_batch_norm(graph);
  verify(ir);
  const auto after = Interpreter(ir, Precision::kDouble).evaluate(graph, inputs);
  EXPECT_EQ(before.size(), after.size());
  for (size_t o = 0; o < before.size(); ++o) {
    const auto want = before[o].to_doubles();
    const auto have = after[o].to_doubles();
    // The folded graph holds epsilon in f32.
    for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(have[i], want[i], 1e-9) << o << " " << i;
  }
  return folded;
}

const ops::ConvOptions kConv{.stride = {2, 1}, .padding = {1, 1}, .groups = 2};

TEST(FoldBatchNorm, FoldsIntoAConvWithABias) {
  Ir ir;
  Graph& g = network(ir, [](Graph&, Tensor x, Tensor w, Tensor b, Tensor weight, Tensor bias,
                            Tensor mean, Tensor variance) {
    const Tensor y = ops::conv(x, w, kConv) + ops::reshape(b, {kChannels, 1, 1});
    return ops::relu(ops::batch_norm_inference(y, weight, bias, mean, variance, {.epsilon = 0.01}));
  });
  const Tensor out = g.outputs()[0];
  EXPECT_EQ(fold(ir, g), 1);
  EXPECT_EQ(g.outputs()[0], out);
  EXPECT_EQ(count(g, "BatchNormInference"), 0);
  EXPECT_EQ(count(g, "Conv"), 1);
  EXPECT_EQ(fold_batch_norm(g), 0);
}

TEST(FoldBatchNorm, FoldsWithoutParameters) {
  Ir ir;
  Graph& g = network(ir, [](Graph&, Tensor x, Tensor w, Tensor, Tensor weight, Tensor, Tensor mean,
                            Tensor variance) {
    const std::vector<TensorArg> none, scaled{weight};
    return Tensors{ops::batch_norm_inference(ops::conv(x, w, kConv), none, mean, variance),
                   ops::batch_norm_inference(ops::conv(x, w, kConv), scaled, mean, variance)};
  });
  EXPECT_EQ(fold(ir, g), 2);
  EXPECT_EQ(count(g, "BatchNormInference"), 0);
  EXPECT_EQ(count(g, "Conv"), 2);
}

// The conv's result is read again, is an output, or has another bias; or an operand is overwritten.
TEST(FoldBatchNorm, LeavesOtherNorms) {
  Ir ir;
  Graph& g = network(ir, [](Graph&, Tensor x, Tensor w, Tensor b, Tensor weight, Tensor bias,
                            Tensor mean, Tensor variance) {
    const auto norm = [&](const Tensor& t) {
      return ops::batch_norm_inference(t, weight, bias, mean, variance);
    };
    const Tensor twice = ops::conv(x, w, kConv);
    const Tensor shown = ops::conv(x, w, kConv);
    const Tensor same_everywhere = ops::conv(x, w, kConv) + ops::sum(b);
    const Tensor changed = ops::mul(w, 2.0);
    const Tensor late = ops::conv(x, changed, kConv);
    ops::add_(changed, 1.0);
    return Tensors{norm(twice) + twice, norm(shown), shown, norm(same_everywhere), norm(late)};
  });
  EXPECT_EQ(fold(ir, g), 0);
  EXPECT_EQ(count(g, "BatchNormInference"), 4);
}

}  // namespace
}  // namespace sluice::transforms
