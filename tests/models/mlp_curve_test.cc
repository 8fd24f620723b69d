// The losses of a small perceptron over 200 steps of SGD must be those of PyTorch. They are
// compared with mlp_curve.csv, and with PyTorch itself if it is installed.

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <iostream>
#include <sstream>

#include "pytorch.h"
#include "sluice/devices/cpu_device.h"
#include "sluice/session/session.h"
#include "sluice/sluice.h"

namespace sluice::test {
namespace {

constexpr int kSteps = 200;
constexpr int64_t kBatch = 16, kInputs = 784, kHidden = 64, kClasses = 10;
constexpr double kRate = 0.05;
constexpr double kTolerance = 1e-4;

// Generates the numbers of Lcg in mlp_curve.py.
class Lcg {
 public:
  explicit Lcg(uint64_t seed) : state_(seed) {}
  double next() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<double>(state_ >> 40) / 0x1p24;
  }
  HostTensor array(const Shape& shape, double scale = 1) {
    HostTensor t(f32_spec(shape));
    for (float& x : t.as<float>()) x = static_cast<float>((2 * next() - 1) * scale);
    return t;
  }

 private:
  uint64_t state_;
};

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

struct Curve {
  std::vector<double> single, twice;  // Losses in float32 and in float64.
};

Curve read_curve(std::istream& in) {
  Curve curve;
  std::string line;
  std::getline(in, line);
  EXPECT_EQ(line, "step,float32,float64");
  while (std::getline(in, line)) {
    double step, a, b;
    if (std::sscanf(line.c_str(), "%lf,%lf,%lf", &step, &a, &b) != 3) break;
    curve.single.push_back(a);
    curve.twice.push_back(b);
  }
  return curve;
}

void expect_close(const std::vector<double>& got, const Curve& want, const char* what) {
  ASSERT_EQ(want.single.size(), got.size());
  double worst_single = 0;
  double worst_twice = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    worst_single = std::max(worst_single, std::abs(got[i] - want.single[i]) / want.single[i]);
    worst_twice = std::max(worst_twice, std::abs(got[i] - want.twice[i]) / want.twice[i]);
  }
  std::cout << fmt::format(
      "{}: largest relative difference {:.2e} (to float64: {:.2e}) over {} steps, loss {:.4f} to "
      "{:.4f}\n",
      what, worst_single, worst_twice, got.size(), got.front(), got.back());
  EXPECT_LT(worst_single, kTolerance) << what;
  EXPECT_LT(worst_twice, kTolerance) << what;
}

TEST(MlpCurve, IsPyTorchs) {
  const std::vector<double> losses = losses_of_a_session(1);
  EXPECT_EQ(losses_of_a_session(3), losses);
  EXPECT_LT(losses.back(), 0.5 * losses.front());
  std::ifstream file("tests/models/mlp_curve.csv");
  ASSERT_TRUE(file) << "run in the root of the repository";
  expect_close(losses, read_curve(file), "stored values");
  if (const std::string now = run_pytorch("mlp_curve.py"); !now.empty()) {
    std::istringstream in(now);
    expect_close(losses, read_curve(in), "PyTorch here");
  }
}

}  // namespace
}  // namespace sluice::test
