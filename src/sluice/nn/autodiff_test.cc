#include "sluice/nn/autodiff.h"

#include <gtest/gtest.h>

#include "sluice/interp/interpreter.h"
#include "sluice/ir/verify.h"
#include "sluice/nn/batch_serialise.h"
#include "sluice/nn/layers.h"
#include "sluice/nn/test_util.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/updates.h"

namespace sluice::nn {
namespace {

const TensorSpec kImages = f32_spec({3, 4});

HostTensor values(const Shape& shape, float start) {
  HostTensor t(f32_spec(shape));
  for (float& x : t.as<float>()) x = start += 0.375f;
  return t;
}

TEST(Autodiff, HasInfoAndNoNames) {
  Ir ir;
  const auto [factories, forward] = create_graph(ir, Linear(2), kImages);
  const GraphWithNamedArgs backward = autodiff(forward);
  EXPECT_TRUE(backward.args().empty());
  EXPECT_EQ(&backward.grad_graph_info().forward_graph(), &forward.graph());
  EXPECT_EQ(&backward.grad_graph_info().graph(), &backward.graph());
  EXPECT_EQ(backward.graph().outputs().size(), 3u);
  EXPECT_EQ(forward.autodiff().graph().outputs().size(), 3u);
  const Tensors only{forward.args()["bias"]};
  EXPECT_EQ(forward.autodiff({.grads_required = only}).graph().outputs().size(), 1u);
  EXPECT_NE(usage_error([&, f = &forward] { f->grad_graph_info(); }).find("not a gradient graph"),
            std::string::npos);
  verify(ir);
}

// The gradients of Linear's weight for each of `steps` micro-batches, and their running mean.
struct Gradients {
  std::vector<HostTensor> grads;
  HostTensor mean;
};

enum class Keep { kActivations, kRecomputed };

Gradients accumulate(int steps, Keep keep) {
  Ir ir;
  Graph& main = ir.main_graph();
  const H2dStream images = ir.h2d_stream(kImages, "x");
  const H2dStream upstream = ir.h2d_stream(f32_spec({3, 2}), "dy");
  const Tensor x = main.host_load(images);
  const Tensor dy = main.host_load(upstream);
  const auto [factories, forward] = create_graph(ir, Sequential(Linear(5), Gelu(), Linear(2)), x);
  const Tensor weight = forward.args()["0.weight"];
  const Tensor bias = forward.args()["2.bias"];
  GraphWithNamedArgs plain = autodiff(forward, {.grads_required = Tensors{weight}});
  auto [accumulators, backward] = autodiff_with_accumulation(forward, {bias, weight});
  EXPECT_EQ(accumulators.keys_flat(),
            (std::vector<std::string>{"mean_accum_counter", "accum.2.bias", "accum.0.weight"}));
  if (keep == Keep::kRecomputed) {
    plain = recompute_graph(plain);
    backward = recompute_graph(backward);
  }
  const NamedTensors variables = factories.init(main, {.seed = 1});
  const NamedTensors state = accumulators.init(main);
  const CallSiteInfo fwd = forward.bind(variables).call_with_info(x);
  const CallSiteInfo once = plain.call_with_info(dy, plain.grad_graph_info().inputs_dict(fwd));
  backward.bind(state).call(dy, backward.grad_graph_info().inputs_dict(fwd));
  const D2hStream grads = main.host_store(once.output(0), "grad");
  verify(ir);

  Interpreter interpreter(ir);
  Gradients run;
  for (int step = 0; step < steps; ++step) {
    const auto out = interpreter.run({{images, values({3, 4}, static_cast<float>(step))},
                                      {upstream, values({3, 2}, static_cast<float>(-step))}});
    run.grads.push_back(out[grads]);
  }
  run.mean = interpreter.read(state["accum.0.weight"]);
  EXPECT_EQ(interpreter.read(state["mean_accum_counter"]).to_doubles(),
            std::vector<double>{static_cast<double>(steps)});
  return run;
}

TEST(Autodiff, AccumulatesRunningMeans) {
  const Gradients run = accumulate(3, Keep::kActivations);
  for (size_t i = 0; i < run.mean.to_doubles().size(); ++i) {
    double mean = 0;
    for (const HostTensor& grad : run.grads) mean += grad.to_doubles()[i] / 3;
    EXPECT_NEAR(run.mean.to_doubles()[i], mean, 1e-6);
  }
}

TEST(Autodiff, RecomputedGradientsHaveTheSameBits) {
  const Gradients kept = accumulate(2, Keep::kActivations);
  const Gradients recomputed = accumulate(2, Keep::kRecomputed);
  EXPECT_TRUE(kept.mean.same_bits(recomputed.mean));
  for (size_t i = 0; i < kept.grads.size(); ++i)
    EXPECT_TRUE(kept.grads[i].same_bits(recomputed.grads[i]));
}

TEST(Autodiff, AccumulatorsOfTensorsWithoutAKey) {
  Ir ir;
  const auto [factories, forward] = create_graph(ir, Linear(2), kImages);
  const auto [accumulators, backward] = autodiff_with_accumulation(
      forward, {forward.args()["weight"]}, {.grads_required = {forward.graph().inputs()[0]}});
  EXPECT_EQ(backward.graph().outputs().size(), 1u);
  const auto [of_input, other] = autodiff_with_accumulation(forward, {forward.graph().inputs()[0]});
  EXPECT_EQ(of_input.keys_flat(), (std::vector<std::string>{"mean_accum_counter", "accum.x"}));
  verify(ir);
}

// The gradient phase must know which of its inputs are tensors of its forward graph.
TEST(Autodiff, APhaseIsConnectedWithTheForwardGraph) {
  Ir ir;
  Graph& main = ir.main_graph();
  const auto [factories, forward] =
      create_graph(ir, Sequential(Linear(5), Gelu(), Linear(2)), kImages);
  const auto [accumulators, backward] = autodiff_with_accumulation(
      forward, forward.args().tensors(), {.grads_required = {forward.graph().inputs()[0]}});
  const H2dStream images = ir.h2d_stream(kImages, "x");
  const RemoteBuffer dys = ir.remote_buffer(f32_spec({3, 2}), 2);
  const auto [fwd, bwd] = batch_serialise_fwd_and_grad(
      forward, backward, forward.args(),
      {.steps = 2,
       .loads = {{forward.graph().inputs()[0], images},
                 {backward.graph().inputs()[0], BatchHandle{dys, 0}}}});
  usage_error([&, f = &fwd] { f->graph.grad_graph_info(); });
  const transforms::GradGraphInfo& info = bwd.graph.grad_graph_info();
  EXPECT_EQ(&info.forward_graph(), &forward.graph());
  EXPECT_EQ(&info.graph(), &bwd.graph.graph());
  EXPECT_TRUE(info.outputs().empty());
  // The gradients do not need the biases.
  EXPECT_EQ(info.inputs(), (Tensors{forward.args()["0.weight"], forward.args()["2.weight"]}));
  const NamedTensors variables = factories.init(main);
  const CallSiteInfo call = forward.bind(variables).call_with_info(main.host_load(images));
  TensorMap given = info.inputs_dict(call);
  EXPECT_EQ(given, (TensorMap{{bwd.graph.args()["0.weight"], variables["0.weight"]},
                              {bwd.graph.args()["2.weight"], variables["2.weight"]}}));
  bwd.graph.bind(accumulators.init(main)).call(0, given);
  verify(ir);
}

}  // namespace
}  // namespace sluice::nn
