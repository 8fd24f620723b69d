// The losses of a small perceptron over 200 steps of SGD must be those of PyTorch. They are
// compared with mlp_curve.csv, and with PyTorch itself if it is installed.

#include <gtest/gtest.h>

#include "curve.h"
#include "sluice/devices/cpu_device.h"
#include "sluice/session/session.h"
#include "sluice/sluice.h"

namespace sluice::test {
namespace {

constexpr int kSteps = 200;
constexpr int64_t kBatch = 16, kInputs = 784, kHidden = 64, kClasses = 10;
constexpr double kRate = 0.05;

class Perceptron : public nn::Module {
 public:
  Tensor build(nn::Builder& b, Tensor x) const { return fc2_(b, ops::gelu(fc1_(b, x))); }

 private:
  nn::Child<nn::Linear> fc1_{*this, "fc1", kHidden};
  nn::Child<nn::Linear> fc2_{*this, "fc2", kClasses};
};

std::vector<double> losses_of_a_session(int threads) {
  Ir ir;
  Graph& main = ir.main_graph();
  const H2dStream image = ir.h2d_stream(f32_spec({kBatch, kInputs}), "image");
  const H2dStream label = ir.h2d_stream(i32_spec({kBatch}), "label");
  const Tensor x = main.host_load(image);
  const Tensor truth = main.host_load(label);
  const auto [factories, forward] = nn::create_graph(ir, Perceptron(), x);
  const nn::GraphWithNamedArgs backward = nn::autodiff(forward);
  const nn::NamedTensors variables = factories.init(main);
  const CallSiteInfo call = forward.bind(variables).call_with_info(x);
  const auto [mean_loss, gradient] = ops::cross_entropy_with_grad(call.output(0), truth);
  const D2hStream loss = main.host_store(mean_loss, "loss");
  const auto& info = backward.grad_graph_info();
  const CallSiteInfo back = backward.call_with_info(gradient, info.inputs_dict(call));
  nn::Optimizer::sgd().apply(main, variables, info.fwd_parent_ins_to_grad_parent_outs(call, back),
                             kRate);

  Session session(ir, {.device = cpu_device({.threads = threads})});
  Lcg weights(1);
  session.write(variables["fc1.weight"], weights.array({kInputs, kHidden}, 0.0625));
  session.write(variables["fc1.bias"], weights.array({kHidden}, 0.0625));
  session.write(variables["fc2.weight"], weights.array({kHidden, kClasses}, 0.125));
  session.write(variables["fc2.bias"], weights.array({kClasses}, 0.125));
  const HostTensor prototypes = Lcg(2).array({kClasses, kInputs}, 0.25);
  Lcg batches(3);
  std::vector<double> losses;
  for (int step = 0; step < kSteps; ++step) {
    HostTensor labels(label.spec);
    for (int32_t& l : labels.as<int32_t>()) l = static_cast<int32_t>(batches.next() * kClasses);
    HostTensor images = batches.array({kBatch, kInputs});
    const auto pixels = images.as<float>();
    for (size_t i = 0; i < pixels.size(); ++i) {
      const auto row = static_cast<size_t>(labels.as<int32_t>()[i / kInputs]);
      pixels[i] = prototypes.as<float>()[row * kInputs + i % kInputs] + pixels[i];
    }
    losses.push_back(session.run({{image, images}, {label, labels}})[loss].as<float>()[0]);
  }
  return losses;
}

TEST(MlpCurve, IsPyTorchs) {
  const std::vector<double> losses = losses_of_a_session(1);
  EXPECT_EQ(losses_of_a_session(3), losses);
  EXPECT_LT(losses.back(), 0.5 * losses.front());
  expect_pytorchs(losses, "mlp_curve");
}

}  // namespace
}  // namespace sluice::test
