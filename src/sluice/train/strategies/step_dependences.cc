#include "sluice/train/strategies/step_dependences.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

namespace sluice::train {
namespace {

// Fields and seeds of a network, which are read from streams.
std::set<TensorId> loaded_values(const NetworkGraph& network) {
  std::set<TensorId> values;
  for (const auto& [name, whole] : network.fields) values.insert(whole.id());
  for (const Tensor& seed : network.seed) values.insert(seed.id());
  return values;
}

std::set<TensorId> results_of(const NetworkGraph& network) {
  std::set<TensorId> values;
  for (const Loss& loss : network.results.losses) values.insert(loss.value.id());
  for (const Tensor& sum : network.loss_sums) values.insert(sum.id());
  for (const Prediction& p : network.results.predictions) values.insert(p.value.id());
  if (network.total_weight.valid()) values.insert(network.total_weight.id());
  return values;
}

}  // namespace

OrderCounts counts_of(const Options& options, nn::RunMode mode) {
  return {.micro_batches = options.accumulate,
          .updates = options.device_iterations,
          .has_update = mode == nn::RunMode::kTrain,
          .has_norm = options.max_grad_norm.has_value()};
}

StepDependences step_dependences(const NetworkGraph& network, const Cut& cut,
                                 const BlockGradients& gradients, const TrainedWeights& weights,
                                 const PlacedStages& stages, const Options& options,
                                 nn::RunMode mode) {
  StepDependences step{.counts = counts_of(options, mode), .has_seeds = cut.seeds.has_value()};
  for (const AssignedStage& stage : stages) step.stages.push_back(stage.blocks);
  const std::set<TensorId> loaded = loaded_values(network), results = results_of(network);
  std::map<TensorId, BlockId> makers;
  for (const BlockId b : cut.blocks.ids()) {
    for (const BlockValue& v : cut.blocks[b].outputs) makers.emplace(v.whole.id(), b);
    for (const BlockValue& v : cut.blocks[b].inputs) {
      if (loaded.contains(v.whole.id())) makers.emplace(v.whole.id(), b);
    }
  }
  std::map<std::string, size_t> numbers;  // Trained weights by key.
  for (const auto& [key, uses] : weights) numbers.emplace(key, numbers.size());
  // The first later block that computes the gradient of a value, by value.
  std::map<TensorId, BlockId> gradient_makers;
  step.blocks.resize(cut.blocks.size());
  for (BlockId b(cut.blocks.size() - 1); b.valid(); b = BlockId(b - 1)) {
    const BlockGraph& block = cut.blocks[b];
    BlockDependences& d = step.blocks[b];
    d.name = block.name;
    d.has_gradient = gradients[b].has_value();
    d.ascends = b == 0 || !block.updates.empty();
    for (const BlockValue& v : block.inputs) {
      const auto maker = makers.find(v.whole.id());
      if (maker == makers.end()) continue;
      if (maker->second != b) d.reads.push_back(maker->second);
      d.ascends = d.ascends || maker->second == b;
    }
    for (const BlockValue& v : block.outputs)
      d.ascends = d.ascends || results.contains(v.whole.id());
    for (const WeightUse& w : block.weights) {
      if (const auto trained = numbers.find(w.key); trained != numbers.end())
        d.weights.push_back(trained->second);
    }
    if (!gradients[b]) continue;
    for (const TakenGradient& t : gradients[b]->taken) {
      if (!t.loss.valid()) d.reads_gradients.push_back(gradient_makers.at(t.value.whole.id()));
    }
    for (const Tensor& t : gradients[b]->inputs) gradient_makers[t.id()] = b;
  }
  return step;
}

}  // namespace sluice::train
