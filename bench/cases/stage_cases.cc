#include <memory>

#include "bench/figure.h"
#include "bench/training_steps.h"

namespace sluice::bench {
namespace {

constexpr int64_t kStagedLayers = 8;
constexpr int64_t kStagedWidth = 512;
constexpr int64_t kMicroBatch = 64;
constexpr int64_t kStagedAccumulate = 16;

// Equal layers of kStagedWidth, and a loss.
class StagedLayers : public nn::Module {
 public:
  StagedLayers() {
    for (int64_t i = 0; i < kStagedLayers; ++i) layers_.add(kStagedWidth);
  }
  Tensor build(nn::Builder& b, Tensor x) const {
    for (size_t i = 0; i < layers_.size(); ++i) x = ops::gelu(layers_[i](b, x));
    return x;
  }

 private:
  nn::Children<nn::Linear> layers_{*this, "fc"};
};

std::shared_ptr<TrainingSteps> start_steps(const train::Strategy& strategy, int threads) {
  const bool resident = std::holds_alternative<train::ResidentExecution>(strategy);
  return std::make_shared<TrainingSteps>(
      train::classifier(StagedLayers(), {{kMicroBatch, kStagedWidth}, f32}), nn::Optimizer::sgd(),
      train::Options{.strategy = strategy, .accumulate = kStagedAccumulate, .learning_rate = 1e-4},
      SessionOptions{
          .device = cpu_device({.threads = threads}),
          .more_devices = std::vector(resident ? 0 : 1, cpu_device({.threads = threads}))});
}

Case stage_case(std::string name, const train::Strategy& strategy, int threads, double goal) {
  return {.group = "stages",
          .name = std::move(name),
          .threads = threads,
          .unit = Unit::kMilliseconds,
          .goals = {{Goal::Of::kPart, goal}},
          .start = [strategy, threads]() -> std::function<Round()> {
            return [resident = start_steps(train::resident(), threads),
                    staged = start_steps(strategy, threads)] {
              const double limit = resident->seconds(4);
              return Round{staged->seconds(4), limit};
            };
          }};
}

}  // namespace

// Two balanced stages of four layers, 16 micro-batches. The limit is one device with as many
// threads. The pipeline's goal counts the bubble of devices with threads of their own.
std::vector<Case> stage_cases() {
  using train::PipelinedExecution;
  constexpr int kStages = 2;
  return {stage_case("2 x 4 layers of 512, pipelined", PipelinedExecution{kStages}, 2,
                     0.9 * (1 - 1.0 / (kStagedAccumulate + 1))),
          stage_case("2 x 4 layers of 512, interleaved",
                     PipelinedExecution{kStages, train::Schedule::kInterleaved}, 2,
                     0.9 * (1 - 1.0 / (kStagedAccumulate + 1))),
          stage_case("2 x 4 layers of 512, sharded", train::ShardedExecution{kStages}, 1, 0.95)};
}

}  // namespace sluice::bench
