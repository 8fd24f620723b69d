// The activations that the devices of a pipeline hold, as measured bytes.
#include <gmock/gmock.h>

#include <cmath>

#include "sluice/sluice.h"

namespace sluice {
namespace {

using train::PipelinedExecution;
using train::Schedule;
using train::Stage;

constexpr int64_t kStages = 4;
constexpr int64_t kSamples = 512;
constexpr int64_t kHidden = 1024;
/// Bytes of the activation that a block keeps for its gradients. All else that depends on a
/// micro-batch is 1/1024 of it.
constexpr double kSet = kSamples * kHidden * 4.0;

/// Four equal blocks, each x + (x @ in) @ out for one feature x. A block keeps x and x @ in.
struct Blocks : nn::Module {
  train::Results build(nn::Builder& b, const train::Inputs& in) const {
    Tensor x = in["x"];
    for (int64_t k = 0; k < kStages; ++k) {
      const nn::Block block(b, fmt::format("B{}", k));
      const Tensor wide =
          b.add_variable_input(fmt::format("in{}", k), nn::normal(0, 1), {1, kHidden});
      const Tensor narrow =
          b.add_variable_input(fmt::format("out{}", k), nn::normal(0, 0.1), {kHidden, 1});
      x = x + ops::matmul(ops::matmul(x, wide), narrow);
      if (k + 1 < kStages) continue;
      if (in.mode() == nn::RunMode::kEvaluate) return {.predictions = {{"y", x}}};
      return {.losses = {{.value = ops::mean(x * x)}}};
    }
    return {};
  }
};

/// Measured bytes of each device.
std::vector<int64_t> peaks(const train::Strategy& strategy) {
  Ir ir;
  const train::Network network{
      Blocks(), {{.name = "x", .spec = f32_spec({kSamples, 1}), .eval_spec = f32_spec({1, 1})}}};
  build_training(ir, network, nn::Optimizer::sgd(), {.strategy = strategy, .accumulate = 8});
  const Session session(ir, {.device = cpu_device({.threads = 1}),
                             .more_devices = std::vector(kStages - 1, cpu_device({.threads = 1}))});
  std::vector<int64_t> bytes;
  for (int d = 0; d < kStages; ++d) {
    EXPECT_EQ(session.planned_bytes(d), session.measured_bytes(d)) << "device " << d;
    bytes.push_back(session.measured_bytes(d));
  }
  return bytes;
}

/// The activation sets that each device holds at its peak. A device of the sharded step holds one.
std::vector<int64_t> sets(Schedule schedule) {
  const std::vector<int64_t> one = peaks(train::sharded());
  const std::vector<int64_t> all = peaks(PipelinedExecution{{}, schedule});
  std::vector<int64_t> result;
  for (size_t d = 0; d < all.size(); ++d) {
    const double more = static_cast<double>(all[d] - one[d]) / kSet;
    result.push_back(1 + std::lround(more));
    // Inputs and messages of a micro-batch in flight add a few parts in 1024.
    EXPECT_NEAR(more, std::round(more), 0.05) << "device " << d;
  }
  return result;
}

TEST(StagePeaks, AreTheMicroBatchesInFlight) {
  EXPECT_THAT(sets(Schedule::kGrouped), testing::ElementsAre(7, 5, 3, 1));
  EXPECT_THAT(sets(Schedule::kInterleaved), testing::ElementsAre(4, 3, 2, 1));
  EXPECT_THAT(sets(Schedule::kSequential), testing::ElementsAre(1, 1, 1, 1));
}

// A device of the sharded step holds one set besides the operands of one block's gradients.
TEST(StagePeaks, OfASequentialStepAreOneSet) {
  for (const int64_t bytes : peaks(train::sharded())) {
    EXPECT_GE(static_cast<double>(bytes), kSet);
    EXPECT_LT(static_cast<double>(bytes), 3 * kSet);
  }
}

}  // namespace
}  // namespace sluice
