/// Lesson 13: a pipeline from functions (document 001). Each function builds a stage; two of them
/// run side by side. The learning rate is a value of each run, so one program serves all rates.
#include <fmt/core.h>

#include <sluice/sluice.h>
#include <sluice/train/pipeline.h>
#include <cmath>
#include <string>
#include <vector>

using namespace sluice;
using train::StageInputs;

namespace {

constexpr int64_t kMicroBatch = 16;
constexpr int64_t kAccumulate = 8;  // Micro-batches per update.
constexpr int64_t kRepeat = 50;     // Updates of a run.

// The last stage differs between training and inference.
std::vector<train::PipelineStage> stages(const train::StageFunction& last) {
  const auto first = [](nn::Builder& b, const StageInputs& in) {
    return ops::gelu(b.inlined("first", nn::Linear(16), in["x"]));
  };
  const auto left = [](nn::Builder& b, const StageInputs& in) {
    return ops::gelu(b.inlined("left", nn::Linear(16), in[0]));
  };
  const auto right = [](nn::Builder& b, const StageInputs& in) {
    return ops::gelu(b.inlined("right", nn::Linear(16), in[0]));
  };
  return {first, {left, right}, last};  // Stage 1 has two functions with the same arguments.
}

// Stage 2 reads the outputs of both functions, in their order.
Tensor predict(nn::Builder& b, const StageInputs& in) {
  return b.inlined("last", nn::Linear(1), in[0] * in[1]);
}

// The targets go from the host to the last stage; the stages before it do not pass them on.
Tensor loss(nn::Builder& b, const StageInputs& in) {
  const Tensor error = predict(b, in) - in["target"];
  return ops::mean(error * error);
}

const train::Field kX{.name = "x", .spec = f32_spec({kMicroBatch, 2})};
const train::Field kTarget{.name = "target", .spec = f32_spec({kMicroBatch, 1})};

// Points of a square, and sin(3a)·b of the coordinates a and b.
struct Points {
  explicit Points(int64_t micro_batches)
      : x({{micro_batches, kMicroBatch, 2}, f32}), target({{micro_batches, kMicroBatch, 1}, f32}) {
    const auto at = x.as<float>();
    const auto value = target.as<float>();
    for (size_t i = 0; i < value.size(); ++i) {
      for (const auto& [axis, step] : {std::pair(0u, 0.754877666), std::pair(1u, 0.569840291)}) {
        const double turn = static_cast<double>(i + 1) * step;
        at[2 * i + axis] = static_cast<float>(2 * (turn - std::floor(turn)) - 1);
      }
      value[i] = std::sin(3 * at[2 * i]) * at[2 * i + 1];
    }
  }
  HostTensor x, target;
};

Session open(const Ir& ir, const train::Training& t) {
  const auto device = cpu_device({.threads = 1});
  return Session(ir, {.device = device,
                      .more_devices = std::vector(static_cast<size_t>(t.devices) - 1, device)});
}

train::Training training(const Ir& ir, std::vector<train::StageDevices> mapping) {
  return train::pipeline(ir, stages(loss),
                         {.accumulate = kAccumulate,
                          .device_iterations = kRepeat,
                          .inputs = {{.name = "rate", .spec = {{}, f32, {}}}},
                          .fields = {kX, kTarget},
                          .optimizer = nn::Optimizer::adam(),
                          .learning_rate = train::StreamedRate{"rate"},
                          .device_mapping = std::move(mapping)});
}

// The functions after training on these devices.
struct Trained {
  explicit Trained(std::vector<train::StageDevices> mapping)
      : t(training(ir, std::move(mapping))), session(open(ir, t)) {
    const Points points(kAccumulate * kRepeat);
    for (const float rate : {0.02f, 0.02f, 0.005f, 0.001f}) {
      const HostTensors out = session.run({{*t.learning_rate, HostTensor::scalar(rate)},
                                           {t.fields[0], points.x},
                                           {t.fields[1], points.target}},
                                          "train");
      for (const float l : out[t.losses[0]].as<float>()) losses.push_back(l);
      fmt::print("{} updates, rate {}: loss {:.3f}\n", losses.size() / kAccumulate, rate,
                 losses.back());
    }
  }

  Ir ir;
  train::Training t;
  Session session;
  std::vector<float> losses = {};
};

}  // namespace

int main() {
  fmt::print("Stages on devices 0, 1 beside 2, and 2:\n");
  const Trained pipeline({0, {1, 2}, 2});
  fmt::print("On one device:\n");
  const Trained whole({0, {0, 0}, 0});
  fmt::print("the same bits: {}\n", pipeline.losses == whole.losses ? "yes" : "no");

  // Without an optimizer, a pipeline of S stages runs D micro-batches in D + S - 1 iterations.
  constexpr int64_t kRun = 4;
  Ir ir;
  const train::Training t = train::pipeline(ir, stages(predict),
                                            {.accumulate = kRun,
                                             .fields = {kX},
                                             .outputs = {"prediction"},
                                             .device_mapping = {0, {1, 2}, 2}});
  Session session = open(ir, t);
  t.variables.for_each([&](const std::string& key, const Tensor& weight) {
    session.write(weight, pipeline.session.read(pipeline.t.variables[key]));
  });
  const Points points(kRun);
  const HostTensors out = session.run({{t.eval_fields[0], points.x}}, "eval");
  const auto predicted = out[t.eval_predictions[0]].as<float>();
  for (const size_t i : {0, 1, 2})
    fmt::print("predicted {:.2f}, is {:.2f}\n", predicted[i], points.target.as<float>()[i]);
}
