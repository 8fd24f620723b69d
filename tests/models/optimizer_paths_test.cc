// Compares the steps of optimizers with those of PyTorch: with optimizer_paths.csv, and with
// PyTorch itself if it is installed.

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <sstream>

#include "pytorch.h"
#include "sluice/devices/cpu_device.h"
#include "sluice/session/session.h"
#include "sluice/sluice.h"

namespace sluice::test {
namespace {

constexpr int kSteps = 60, kCount = 6;
constexpr double kRate = 0.05, kTolerance = 2e-5;

using Weights = std::vector<double>;
using Paths = std::map<std::string, std::map<int, Weights>>;  // Weights by optimizer and step.

Paths read_paths(std::istream& in) {
  Paths paths;
  std::string line;
  std::getline(in, line);
  EXPECT_EQ(line, "optimizer,step,w0,w1,w2,w3,w4,w5");
  while (std::getline(in, line)) {
    std::istringstream words(line);
    std::string name, word;
    std::getline(words, name, ',');
    std::getline(words, word, ',');
    Weights& weights = paths[name][std::stoi(word)];
    while (std::getline(words, word, ',')) weights.push_back(std::stod(word));
    EXPECT_EQ(weights.size(), static_cast<size_t>(kCount)) << line;
  }
  return paths;
}

nn::Optimizer named(const std::string& name) {
  if (name == "clipped") return nn::Optimizer::sgd({.momentum = 0.9});
  if (name == "momentum") return nn::Optimizer::sgd({.momentum = 0.9, .weight_decay = 0.125});
  if (name == "adam") return nn::Optimizer::adam({.weight_decay = 0.125});
  if (name == "adamw") return nn::Optimizer::adamw({.weight_decay = 0.125});
  if (name == "adamax") return nn::Optimizer::adamax({.beta1 = 0.8, .beta2 = 0.9});
  EXPECT_EQ(name, "adamax-decay");
  return nn::Optimizer::adamax({.beta1 = 0.8, .beta2 = 0.9, .weight_decay = 0.125});
}

// Returns the weights after each step.
std::vector<Weights> path_of(nn::Optimizer optimizer, const nn::UpdateOptions& options) {
  Ir ir;
  Graph& main = ir.main_graph();
  const H2dStream noise = ir.h2d_stream(f32_spec({kCount}), "noise");
  std::vector<float> slope, bottom;
  for (int i = 0; i < kCount; ++i) {
    slope.push_back(static_cast<float>(i + 1) / 4);
    bottom.push_back(i % 2 == 0 ? 1.0f : -1.0f);
  }
  const Tensor w = main.variable(f32_spec({kCount}), nn::zeros(), "w");
  const Tensor grad =
      main.constant(HostTensor::of<float>({kCount}, f32, slope), "slope") *
          (w - main.constant(HostTensor::of<float>({kCount}, f32, bottom), "bottom")) +
      main.host_load(noise);
  optimizer.apply(main, nn::NamedTensors::from_dict({{"w", w}}),
                  nn::NamedTensors::from_dict({{"w", grad}}), kRate, options);
  Session session(ir, {.device = cpu_device({.threads = 1})});
  std::vector<Weights> path;
  for (int t = 0; t < kSteps; ++t) {
    HostTensor values(noise.spec);
    for (int k = 0; k < kCount; ++k)
      values.as<float>()[static_cast<size_t>(k)] = static_cast<float>((7 * t + 3 * k) % 5 - 2) / 4;
    session.run({{noise, values}});
    path.push_back(session.read(w).to_doubles());
  }
  return path;
}

void expect_paths(const Paths& want) {
  EXPECT_EQ(want.size(), 6u);
  for (const auto& [name, steps] : want) {
    nn::UpdateOptions options;
    if (name == "clipped") options.max_grad_norm = 0.75;
    const std::vector<Weights> got = path_of(named(name), options);
    EXPECT_EQ(steps.size(), 10u) << name;
    for (const auto& [step, weights] : steps) {
      for (size_t i = 0; i < weights.size(); ++i)
        EXPECT_NEAR(got.at(static_cast<size_t>(step))[i], weights[i], kTolerance)
            << name << " step " << step << " weight " << i;
    }
  }
}

TEST(OptimizerPaths, AreThoseOfPyTorch113) {
  std::ifstream file("tests/models/optimizer_paths.csv");
  ASSERT_TRUE(file) << "run in the root of the source tree";
  expect_paths(read_paths(file));
}

TEST(OptimizerPaths, AreThoseOfThePyTorchHere) {
  std::istringstream text(run_pytorch("optimizer_paths.py"));
  if (text.str().empty())
    GTEST_SKIP() << "requires a python3 with PyTorch; AreThoseOfPyTorch113 needs none";
  expect_paths(read_paths(text));
}

}  // namespace
}  // namespace sluice::test
