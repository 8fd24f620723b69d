#pragma once
#include <string>
#include <utility>
#include <vector>

#include "sluice/devices/cpu_device.h"
#include "sluice/nn/layers.h"
#include "sluice/ops/activations.h"
#include "sluice/ops/losses.h"
#include "sluice/train/model.h"
#include "sluice/train/test_samples.h"

/// A network and options that tests of trainings on feeds share.
namespace sluice::train::test_feeds {

using namespace sluice::test;

/// Three blocks. The first one reads the input and draws, the last one reads the labels.
class FeedNet : public nn::Module {
 public:
  Results build(nn::Builder& b, const Inputs& in) const {
    Tensor x = ops::gelu(hidden_(b, in["input"]));
    x = b.inlined("dropout", nn::Dropout(0.25), x);
    x = out_(b, ops::gelu(middle_(b, x)));
    if (in.mode() == nn::RunMode::kEvaluate) return {.predictions = {{"logits", x, "labels"}}};
    return {.losses = {cross_entropy(x, in["labels"])}, .predictions = {{"logits", x, "labels"}}};
  }

 private:
  nn::Child<nn::Linear> hidden_{*this, "hidden", 8};
  nn::Child<nn::Linear> middle_{*this, "middle", 8};
  nn::Child<nn::Linear> out_{*this, "out", kClasses};
};

inline Network feed_network() {
  return {FeedNet(),
          {{.name = "input", .spec = f32_spec({kMicroBatch, kFeatures})},
           {.name = "labels", .spec = i32_spec({kMicroBatch})}}};
}

inline Options on_three_devices(Options options) {
  options.session = {.device = cpu_device({.threads = 1}),
                     .more_devices = {cpu_device({.threads = 1}), cpu_device({.threads = 1})},
                     .feed_deadline = 60};
  options.learning_rate = 0.1;
  options.seed = 3;
  return options;
}

struct NamedOptions {
  const char* name;
  Options options;
};

/// Every strategy, schedule and io mode. Three updates of N micro-batches a call.
inline std::vector<NamedOptions> forms(int64_t accumulate, int replicas) {
  const Stage last("dropout", "middle", "out");
  const auto form = [&](Strategy strategy, const TensorLocations& locations = {},
                        IoMode mode = IoMode::kIo) {
    return on_three_devices({.strategy = std::move(strategy),
                             .accumulate = accumulate,
                             .device_iterations = 3,
                             .replicas = replicas,
                             .locations = locations,
                             .io_mode = mode});
  };
  const TensorLocations remote = TensorLocations::phased();
  std::vector<NamedOptions> all{
      {"resident", form(resident())},
      {"resident, remote", form(resident(), remote, IoMode::kIoOverlapped)},
      {"sharded", form(sharded("hidden", last))},
      {"phased", form(phased())},
      {"phased, compute", form(phased(), remote, IoMode::kCompute)},
      {"phased, io", form(phased(), remote, IoMode::kIo)},
      {"phased, overlapped", form(phased(), remote, IoMode::kIoOverlapped)}};
  const std::pair<const char*, Schedule> schedules[] = {{"grouped", Schedule::kGrouped},
                                                        {"interleaved", Schedule::kInterleaved},
                                                        {"sequential", Schedule::kSequential},
                                                        {"auto", Schedule::kAuto}};
  for (const auto& [name, schedule] : schedules) {
    PipelinedExecution stages = pipelined("hidden", Stage("dropout", "middle"), "out");
    stages.schedule = schedule;
    all.push_back({name, form(stages)});
  }
  return all;
}

}  // namespace sluice::train::test_feeds
