// Tests that the strategy of docs/howto/add_a_strategy.md has the bits of the resident step, and
// the order that the page shows.
#include <gtest/gtest.h>

#include "sluice/sluice.h"
#include "sluice/train/order/dependences.h"

namespace sluice {
namespace {

// --- Code of the page.
// Runs a block for all micro-batches.
train::OrderLoop block_loop(train::TaskKind kind, train::BlockId block, int64_t micro_batches) {
  const train::Task task{.kind = kind,
                         .stage = train::StageId(block.value()),
                         .block = train::Affine{block},
                         .micro_batch = {0, {1}}};
  return {micro_batches, {task}};
}

train::Order alternate(const train::StepDependences& step) {
  train::Order order;
  const int64_t n = step.counts.micro_batches;
  for (const train::BlockId b : step.blocks.ids())
    order.items.emplace_back(block_loop(train::TaskKind::kForward, b, n));
  for (train::BlockId b(step.blocks.size() - 1); b.valid(); b = train::BlockId(b - 1)) {
    if (step.blocks[b].has_gradient)
      order.items.emplace_back(block_loop(train::TaskKind::kBackward, b, n));
  }
  if (step.counts.has_norm) order.items.emplace_back(train::Task{train::TaskKind::kNorm});
  order.items.emplace_back(train::Task{train::TaskKind::kUpdate});
  return order;
}

// Block b is a stage of its own, on device b modulo 2.
train::Strategy alternating(const std::vector<std::string>& blocks) {
  std::vector<train::Stage> stages;
  for (size_t b = 0; b < blocks.size(); ++b)
    stages.push_back(train::Stage(blocks[b]).device(static_cast<int>(b % 2)));
  return train::OrderedExecution{stages, alternate};
}
// --- End of the code.

// --- Order of the page.
constexpr const char* kOrder =
    "for i in 4 {\n"
    "  forward stage 0, block 0, micro-batch i\n"
    "}\n"
    "for i in 4 {\n"
    "  forward stage 1, block 1, micro-batch i\n"
    "}\n"
    "for i in 4 {\n"
    "  forward stage 2, block 2, micro-batch i\n"
    "}\n"
    "for i in 4 {\n"
    "  backward stage 2, block 2, micro-batch i\n"
    "}\n"
    "for i in 4 {\n"
    "  backward stage 1, block 1, micro-batch i\n"
    "}\n"
    "for i in 4 {\n"
    "  backward stage 0, block 0, micro-batch i\n"
    "}\n"
    "update\n";

constexpr int64_t kBatch = 4, kMicroBatches = 4;

class ThreeBlocks : public nn::Module {
 public:
  train::Results build(nn::Builder& b, const train::Inputs& in) const {
    std::optional<nn::Block> block(std::in_place, b, "A");
    Tensor x = ops::gelu(first_(b, in["input"]));
    block.reset();
    block.emplace(b, "B");
    x = ops::gelu(second_(b, x));
    block.reset();
    block.emplace(b, "C");
    const Tensor logits = third_(b, x);
    if (in.mode() == nn::RunMode::kEvaluate) return {.predictions = {{"logits", logits}}};
    return {.losses = {train::cross_entropy(logits, in["labels"])}};
  }

 private:
  nn::Child<nn::Linear> first_{*this, "first", 6};
  nn::Child<nn::Linear> second_{*this, "second", 6};
  nn::Child<nn::Linear> third_{*this, "third", 3};
};

std::vector<float> weights_after_training(const train::Strategy& strategy) {
  const train::Network network(ThreeBlocks(), {{.name = "input", .spec = {{kBatch, 6}, f32}},
                                               {.name = "labels", .spec = {{kBatch}, i32}}});
  train::TrainingModel model = train::training_model(
      network,
      {.strategy = strategy,
       .accumulate = kMicroBatches,
       .locations = {.activations = train::Location::kRemote},
       .learning_rate = 0.1,
       .seed = 7,
       .session = {.device = cpu_device({.threads = 1}), .more_devices = {cpu_device()}}},
      nn::Optimizer::adam());
  std::vector<float> input(static_cast<size_t>(kBatch * kMicroBatches * 6));
  for (size_t i = 0; i < input.size(); ++i) input[i] = static_cast<float>(i % 13) / 13;
  std::vector<int32_t> labels(static_cast<size_t>(kBatch * kMicroBatches));
  for (size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<int32_t>(i % 3);
  for (int step = 0; step < 3; ++step)
    model({{"input", HostTensor::of<float>({kBatch * kMicroBatches, 6}, f32, input)},
           {"labels", HostTensor::of<int32_t>({kBatch * kMicroBatches}, i32, labels)}});
  const HostTensor weight = model.weight("first.weight");
  const auto values = weight.as<float>();
  return {values.begin(), values.end()};
}

TEST(AddAStrategy, HasTheBitsOfTheResidentStep) {
  EXPECT_EQ(weights_after_training(alternating({"A", "B", "C"})),
            weights_after_training(train::resident()));
}

TEST(AddAStrategy, HasTheOrderOfThePage) {
  train::StepDependences step{.counts = {.micro_batches = kMicroBatches}};
  for (int b = 0; b < 3; ++b) {
    step.stages.push_back({train::BlockId(b)});
    step.blocks.push_back(
        {.name = std::string(1, static_cast<char>('A' + b)), .has_gradient = true});
  }
  EXPECT_EQ(to_string(alternate(step)), kOrder);
  EXPECT_EQ(train::parse_order(kOrder), alternate(step));
  check_order(alternate(step), step);
}

}  // namespace
}  // namespace sluice
