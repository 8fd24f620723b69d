#include "sluice/train/strategies/step_graph.h"

#include <algorithm>

namespace sluice::train {

LoopBlocks blocks_of(const OrderLoop& loop, size_t depth, const PlacedStages& stages) {
  LoopBlocks all;
  for_each_row({loop}, depth, [&](const Task& t) {
    require(t.has_micro_batch(), "order: '{}' must be outside of loops over micro-batches",
            to_string(t));
    if (t.runs_backward()) all.backward_tasks.insert(key_of(t));
    for (const BlockId b : blocks_of(t, stages)) {
      if (t.runs_forward()) all.forward.insert(b);
      if (t.runs_backward()) all.backward.insert(b);
      all.by_device[stages[t.stage].device].insert(b);
    }
  });
  return all;
}

int64_t micro_batches_of_iteration(const OrderLoop& loop, size_t depth) {
  std::optional<int64_t> factor;
  for_each_written_task(loop.body, [&](const Task& t, size_t) {
    if (!factor) factor = t.micro_batch.factor(depth);
  });
  return factor.value_or(0);
}

StepGraph make_body(const StepGraph& outside, Graph& body, const Cut& cut, const LoopBlocks& blocks,
                    const std::vector<std::string>& results, TensorMap& given) {
  StepGraph inside{.graph = body};
  const auto add = [&](const Tensor& t, const std::string& name, Pass pass) {
    given.emplace_back(body.input(t.spec(), name, pass), t);
    return given.back().first;
  };
  for (const auto& [device, run] : blocks.by_device) {
    std::map<std::string, Pass> used;
    for (const BlockId b : run) {
      for (const WeightUse& w : cut.blocks[b].weights) used.emplace(w.key, Pass::kByValue);
      for (const RunningUse& u : cut.blocks[b].updates) used[u.key] = Pass::kByReference;
    }
    nn::NamedTensors& own = inside.weights[device];
    outside.weights.at(device).for_each([&](const std::string& key, const Tensor& t) {
      const auto use = used.find(key);
      if (use != used.end()) own.merge(key, add(t, key, use->second));
    });
  }
  for (const auto& [device, inputs] : outside.inputs) {
    const auto run = blocks.by_device.find(device);
    if (run == blocks.by_device.end()) continue;
    std::set<MicroBatch::Value> read;
    for (const BlockId b : run->second) {
      const auto all = MicroBatch::inputs(cut.blocks[b]);
      read.insert(all.begin(), all.end());
    }
    for (const auto& [value, t] : inputs) {
      if (read.contains(value))
        inside.inputs[device].emplace(value, add(t, t.name(), Pass::kByValue));
    }
  }
  for (const auto& [key, counter] : outside.counters) {
    if (blocks.backward_tasks.contains(key))
      inside.counters.emplace(key, add(counter, counter.name(), Pass::kByReference));
  }
  std::set<std::string> uses;
  for (const BlockId b : blocks.backward) {
    for (const WeightUse& w : cut.blocks[b].weights) uses.insert(w.name());
  }
  for (const auto& [use, mean] : outside.accumulators) {
    if (uses.contains(use))
      inside.accumulators.emplace(use, add(mean, mean.name(), Pass::kByReference));
  }
  for (const auto& [name, kept] : outside.kept.all()) {
    const Tensor& t = kept.tensor;
    if (std::find(results.begin(), results.end(), name) != results.end())
      inside.kept.set(name, add(t, t.name(), Pass::kByReference), kept.form);
  }
  for (const Tensor& i : outside.iterations)
    inside.iterations.push_back(add(i, i.name(), Pass::kByValue));
  return inside;
}

void LoopVariables::load(const StepGraph& outside, StepGraph& inside, TensorMap& given) {
  const DeviceScope on(outside.graph, device_);
  const auto add = [&](const Tensor& t, const std::string& name, Pass pass) {
    given.emplace_back(inside.graph.input(t.spec(), name, pass), t);
    return given.back().first;
  };
  nn::NamedTensors& weights = inside.weights[device_];
  for (const WeightUse& w : block_.weights) {
    if (variables_.is_remote(w.key) && !weights.has_leaf(w.key))
      weights.merge(w.key, add(variables_.weight(outside.graph, w.key), w.key, Pass::kByValue));
  }
  for (const RunningUse& u : block_.updates) {
    if (!task_.runs_forward() || !variables_.is_remote(u.key)) continue;
    const Tensor& t = running_[u.key] = variables_.weight(outside.graph, u.key);
    weights.merge(u.key, add(t, u.key, Pass::kByReference));
  }
  for (const WeightUse& w : block_.weights) {
    if (!task_.runs_backward() || !accumulators_.is_remote(w.name())) continue;
    const Tensor& t = sums_[w.name()] = accumulators_.load(outside.graph, w.name());
    inside.accumulators.emplace(w.name(), add(t, t.name(), Pass::kByReference));
  }
}

void LoopVariables::store(const StepGraph& outside) const {
  const DeviceScope on(outside.graph, device_);
  for (const auto& [key, t] : running_) variables_.store(outside.graph, key, t);
  for (const auto& [use, t] : sums_) accumulators_.store(outside.graph, use, t);
}

}  // namespace sluice::train
