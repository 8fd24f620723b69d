// Compares 50 steps of every optimizer with those of PyTorch and of Keras' RMSprop: with
// optimizer_paths.csv, and with PyTorch itself if it is installed.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <sstream>

#include "pytorch.h"
#include "sluice/devices/cpu_device.h"
#include "sluice/session/session.h"
#include "sluice/sluice.h"

namespace sluice::test {
namespace {

constexpr int kSteps = 50, kPrinted = 4;
constexpr size_t kForms = 27, kKerasForms = 3;
constexpr double kRate = 0.0625, kTolerance = 1e-6;
constexpr std::pair<const char*, int64_t> kTensors[] = {
    {"fc.weight", 12}, {"fc.bias", 4}, {"norm.weight", 4}};

using Weights = std::vector<double>;
using Path = std::map<std::pair<std::string, int>, Weights>;  // Weights by tensor and step.
using Paths = std::map<std::string, Path>;                    // Keyed by optimizer.

Paths read_paths(std::istream& in) {
  Paths paths;
  std::string line;
  std::getline(in, line);
  EXPECT_EQ(line, "optimizer,tensor,step,weights");
  while (std::getline(in, line)) {
    std::istringstream words(line);
    std::string name, tensor, word;
    std::getline(words, name, ',');
    std::getline(words, tensor, ',');
    std::getline(words, word, ',');
    Weights& weights = paths[name][{tensor, std::stoi(word)}];
    while (std::getline(words, word, ',')) weights.push_back(std::stod(word));
  }
  return paths;
}

// --- The initial weights, gradients and rates of optimizer_paths.py.

HostTensor values(int64_t count, const std::function<double(int64_t)>& of) {
  HostTensor t(f32_spec({count}));
  for (int64_t k = 0; k < count; ++k)
    t.as<float>()[static_cast<size_t>(k)] = static_cast<float>(of(k));
  return t;
}

HostTensor first_weights(int64_t tensor) {
  return values(kTensors[tensor].second,
                [&](int64_t k) { return static_cast<double>((11 * k + 5 * tensor) % 17 - 8) / 8; });
}

HostTensor gradient(int64_t tensor, int64_t t) {
  return values(kTensors[tensor].second, [&](int64_t k) {
    return static_cast<double>((37 * t + 101 * k + 13 * t * t * (k + 1) + 59 * tensor) % 257 -
                               120) /
           128;
  });
}

double rate(int t) { return kRate * std::array{1.0, 0.5, 0.75, 0.25}[static_cast<size_t>(t) % 4]; }

// Whether hyperparameters are numbers or tensors that streams bring.
enum class Given { kNumbers, kTensors };

// A program that updates the tensors. Hyperparameters are numbers, or the entries of streams.
class Program {
 public:
  explicit Program(Given given) : given_(given) {}

  ops::HyperArg operator()(double value) {
    if (given_ == Given::kNumbers) return value;
    const H2dStream stream = ir_.h2d_stream(f32_spec({}), fmt::format("h{}", scalars_.size()));
    scalars_.emplace_back(stream, HostTensor::scalar(static_cast<float>(value)));
    return ir_.main_graph().host_load(stream);
  }

  // Returns the weights after every step.
  Path run(nn::Optimizer optimizer, const nn::UpdateOptions& options) {
    Graph& main = ir_.main_graph();
    nn::NamedTensors variables, grads;
    std::vector<H2dStream> streams;
    for (int64_t i = 0; i < std::ssize(kTensors); ++i) {
      const char* const key = kTensors[i].first;
      variables.merge(key, main.variable(first_weights(i), key));
      streams.push_back(ir_.h2d_stream(f32_spec({kTensors[i].second}), key));
      grads.merge(key, main.host_load(streams.back()));
    }
    const H2dStream rates = ir_.h2d_stream(f32_spec({}), "rate");
    optimizer.apply(main, variables, grads, main.host_load(rates), options);
    Session session(ir_, {.device = cpu_device({.threads = 1})});
    Path path;
    for (int t = 0; t < kSteps; ++t) {
      std::vector<std::pair<H2dStream, HostTensor>> in = scalars_;
      in.emplace_back(rates, HostTensor::scalar(static_cast<float>(rate(t))));
      for (int64_t i = 0; i < std::ssize(kTensors); ++i)
        in.emplace_back(streams[static_cast<size_t>(i)], gradient(i, t));
      std::vector<StreamInput> inputs;
      for (const auto& [stream, array] : in) inputs.push_back({stream, array});
      session.run(inputs);
      variables.for_each([&](const std::string& key, const Tensor& w) {
        path[{key, t}] = session.read(w).to_doubles();
      });
    }
    return path;
  }

 private:
  Given given_;
  Ir ir_;
  std::vector<std::pair<H2dStream, HostTensor>> scalars_;
};

nn::Optimizer grouped(const std::string& name, Program& h) {
  using nn::Optimizer;
  if (name == "groups-adamw") {
    return Optimizer::grouped(
        {{nn::keys_unlike({"*.bias", "norm.*"}), Optimizer::adamw({.weight_decay = h(0.125)})},
         {nn::keys_like({"*.bias", "norm.*"}), Optimizer::adamw({.weight_decay = h(0)})}});
  }
  if (name == "groups-sgd") {
    return Optimizer::grouped(
        {{nn::keys_like({"fc.weight"}),
          Optimizer::sgd({.momentum = h(0.9), .weight_decay = h(0.125)})},
         {nn::keys_like({"norm*"}),
          Optimizer::sgd({.momentum = h(0.9), .form = nn::SgdForm::kNesterov}), h(0.25)}});
  }
  EXPECT_EQ(name, "groups-rmsprop");
  return Optimizer::grouped(
      {{nn::keys_like({"*.bias"}), Optimizer::rmsprop({.alpha = h(0.9)}), h(2)},
       {nn::keys_like({"fc.w*t"}),
        Optimizer::rmsprop({.weight_decay = h(0.125), .centering = nn::Centering::kOn})}});
}

nn::Optimizer rmsprop(const std::string& name, Program& h) {
  using nn::Centering;
  using nn::Optimizer;
  constexpr auto kTensorFlow = nn::RmspropForm::kTensorFlow;
  if (name == "rmsprop") return Optimizer::rmsprop();
  if (name == "rmsprop-decay") return Optimizer::rmsprop({.weight_decay = h(0.125)});
  if (name == "rmsprop-momentum")
    return Optimizer::rmsprop({.alpha = h(0.9), .epsilon = h(1e-3), .momentum = h(0.8)});
  if (name == "rmsprop-centered")
    return Optimizer::rmsprop({.alpha = h(0.9), .centering = Centering::kOn});
  if (name == "rmsprop-all") {
    return Optimizer::rmsprop({.alpha = h(0.9),
                               .epsilon = h(1e-3),
                               .weight_decay = h(0.125),
                               .momentum = h(0.8),
                               .centering = Centering::kOn});
  }
  if (name == "rmsprop-tf")
    return Optimizer::rmsprop({.alpha = h(0.9), .epsilon = h(1e-7), .form = kTensorFlow});
  if (name == "rmsprop-tf-momentum") {
    return Optimizer::rmsprop(
        {.alpha = h(0.9), .epsilon = h(0.25), .momentum = h(0.8), .form = kTensorFlow});
  }
  EXPECT_EQ(name, "rmsprop-tf-centered");
  return Optimizer::rmsprop({.alpha = h(0.9),
                             .epsilon = h(1e-3),
                             .momentum = h(0.8),
                             .centering = Centering::kOn,
                             .form = kTensorFlow});
}

nn::Optimizer adam(const std::string& name, Program& h) {
  using nn::Optimizer;
  if (name == "adam") return Optimizer::adam();
  if (name == "adamw") return Optimizer::adamw();
  if (name == "adamax") return Optimizer::adamax({.beta1 = h(0.8), .beta2 = h(0.9)});
  nn::AdamOptions options{.beta1 = h(0.8), .beta2 = h(0.9), .weight_decay = h(0.125)};
  if (name == "adamax-decay") return Optimizer::adamax(options);
  options.epsilon = h(1e-3);
  if (name == "adam-decay") return Optimizer::adam(options);
  EXPECT_EQ(name, "adamw-decay");
  return Optimizer::adamw(options);
}

nn::Optimizer sgd(const std::string& name, Program& h) {
  using nn::Optimizer;
  constexpr auto kNesterov = nn::SgdForm::kNesterov;
  if (name == "sgd") return Optimizer::sgd();
  if (name == "sgd-decay") return Optimizer::sgd({.weight_decay = h(0.125)});
  if (name == "momentum" || name == "clipped") return Optimizer::sgd({.momentum = h(0.9)});
  if (name == "momentum-decay")
    return Optimizer::sgd({.momentum = h(0.9), .weight_decay = h(0.125)});
  if (name == "dampened") return Optimizer::sgd({.momentum = h(0.9), .dampening = h(0.3)});
  if (name == "dampened-decay") {
    return Optimizer::sgd({.momentum = h(0.9), .weight_decay = h(0.125), .dampening = h(0.9)});
  }
  if (name == "dampened-wholly") return Optimizer::sgd({.momentum = h(0.9), .dampening = h(1)});
  if (name == "nesterov") return Optimizer::sgd({.momentum = h(0.9), .form = kNesterov});
  EXPECT_EQ(name, "nesterov-decay");
  return Optimizer::sgd({.momentum = h(0.9), .weight_decay = h(0.125), .form = kNesterov});
}

nn::Optimizer named(const std::string& name, Program& h) {
  if (name.starts_with("groups")) return grouped(name, h);
  if (name.starts_with("rmsprop")) return rmsprop(name, h);
  if (name.starts_with("adam")) return adam(name, h);
  return sgd(name, h);
}

// Expects the weights of every printed step. A difference is measured against the largest weight of
// its tensor.
void expect_paths(const Paths& want, Given given) {
  double worst = 0;
  for (const auto& [name, path] : want) {
    nn::UpdateOptions options;
    if (name == "clipped") options.max_grad_norm = 0.75;
    Program program(given);
    const Path got = program.run(named(name, program), options);
    EXPECT_EQ(path.size(), std::size(kTensors) * kPrinted) << name;
    for (const auto& [position, weights] : path) {
      const Weights& mine = got.at(position);
      ASSERT_EQ(mine.size(), weights.size()) << name << " " << position.first;
      double largest = 0;
      for (const double w : weights) largest = std::max(largest, std::abs(w));
      for (size_t i = 0; i < weights.size(); ++i) {
        const double difference = std::abs(mine[i] - weights[i]) / largest;
        worst = std::max(worst, difference);
        EXPECT_LE(difference, kTolerance)
            << name << " " << position.first << " step " << position.second << " weight " << i
            << ": " << mine[i] << " and " << weights[i];
      }
    }
  }
  std::cout << "largest difference: " << worst << " of the tensor's largest weight\n";
}

Paths stored_paths() {
  std::ifstream file("tests/models/optimizer_paths.csv");
  EXPECT_TRUE(file) << "run in the root of the source tree";
  Paths paths = read_paths(file);
  EXPECT_EQ(paths.size(), kForms);
  return paths;
}

TEST(OptimizerPaths, AreThoseOfPyTorchAndKeras) { expect_paths(stored_paths(), Given::kNumbers); }

TEST(OptimizerPaths, AreTheSameWithTensorsAsHyperparameters) {
  expect_paths(stored_paths(), Given::kTensors);
}

TEST(OptimizerPaths, AreThoseOfThePyTorchHere) {
  std::istringstream text(run_pytorch("optimizer_paths.py"));
  if (text.str().empty())
    GTEST_SKIP() << "requires a python3 with PyTorch; AreThoseOfPyTorchAndKeras does not";
  const Paths paths = read_paths(text);
  EXPECT_GE(paths.size(), kForms - kKerasForms);
  expect_paths(paths, Given::kNumbers);
}

}  // namespace
}  // namespace sluice::test
