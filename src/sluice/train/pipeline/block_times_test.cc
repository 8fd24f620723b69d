// Estimated times of blocks, and cuts into stages of about equal time.
#include "sluice/train/pipeline/block_times.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "sluice/base/test_refusals.h"
#include "sluice/train/cut/test_networks.h"

namespace sluice::train {
namespace {

// The time of the slowest stage of the best cut, found by trying all cuts.
double best(const Ids<BlockId, double>& seconds, BlockId begin, int stages) {
  if (stages == 1) return std::accumulate(seconds.begin() + begin, seconds.end(), 0.0);
  double min = 1e30, first = 0;
  for (BlockId end(begin + 1); end + stages - 1 <= seconds.end_id(); ++end) {
    first += seconds[BlockId(end - 1)];
    min = std::min(min, std::max(first, best(seconds, end, stages - 1)));
  }
  return min;
}

TEST(BalancedCut, HasTheFastestSlowestStage) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    Ids<BlockId, double> seconds(1 + random() % 9);
    for (double& s : seconds) s = static_cast<double>(random() % 10);
    const int stages = 1 + static_cast<int>(random() % seconds.size());
    const std::vector<BlockId> begins = balanced_cut(seconds, stages);
    ASSERT_EQ(begins.size(), static_cast<size_t>(stages));
    EXPECT_EQ(begins[0], 0);
    double slowest = 0;
    for (size_t s = 0; s < begins.size(); ++s) {
      const BlockId end = s + 1 < begins.size() ? begins[s + 1] : seconds.end_id();
      ASSERT_LT(begins[s], end);
      double sum = 0;
      for (const BlockId b : IdRange(begins[s], end)) sum += seconds[b];
      slowest = std::max(slowest, sum);
    }
    EXPECT_DOUBLE_EQ(slowest, best(seconds, BlockId(0), stages));
  }
}

TEST(BalancedCut, RefusesMoreStagesThanBlocks) {
  expect_refused({
      {"more",
       [] {
         balanced_cut({1, 2}, 3);
       },
       "at most the 2 blocks of the model, got 3"},
      {"none",
       [] {
         balanced_cut({1, 2}, 0);
       },
       "at least 1"},
  });
}

TEST(BlockTimes, CountOperationsAndBytes) {
  Ir ir;
  const Network n({Written([](nn::Builder& b, const Inputs& in) {
                     Tensor x = in["x"];
                     {
                       const nn::Block block(b, "product");
                       const Tensor w = b.add_variable_input("w", nn::normal(0, 1), {512, 1024});
                       x = ops::matmul(x, w);
                     }
                     const nn::Block block(b, "sum");
                     return Results{.losses = {{.value = ops::mean(x)}}};
                   }),
                   {{.name = "x", .spec = f32_spec({256, 512})}}});
  const NetworkGraph graph = n.build(ir, nn::RunMode::kTrain);
  const Cut blocks = cut(graph);
  const BlockGradients none(blocks.blocks.size());
  // Products take time by their operations: 2·m·n·k.
  const double products = 2.0 * 256 * 512 * 1024;
  const auto slow = block_times(blocks, none, {.flops = 1e6, .copies = 1e30});
  EXPECT_DOUBLE_EQ(slow.front().forward, products / 1e6);
  EXPECT_EQ(slow.front().backward, 0);
  // With slow copies, the bytes of the operands count: each is read or written once.
  const double bytes = 4.0 * (256 * 512 + 512 * 1024 + 256 * 1024);
  const auto moving = block_times(blocks, none, {.flops = 1e30, .copies = 1e6});
  EXPECT_DOUBLE_EQ(moving.front().forward, bytes / 2e6);
}

}  // namespace
}  // namespace sluice::train
