#include "sluice/train/strategies/micro_batch.h"

#include <algorithm>

#include "sluice/ir/call.h"
#include "sluice/ir/provenance_scope.h"
#include "sluice/transforms/autodiff.h"

namespace sluice::train {
namespace {

using transforms::Connection;
using transforms::ExpectedConnection;

// The value that a block's tensor represents: a network tensor, or the block's own.
RemoteActivations::Value value_of(const BlockGraph& block, const Tensor& part) {
  for (const auto* list : {&block.inputs, &block.outputs}) {
    for (const BlockValue& v : *list) {
      if (v.part == part) return {v.whole.graph_id(), v.whole.id()};
    }
  }
  return {part.graph_id(), part.id()};
}

bool is_weight(const BlockGraph& block, const Tensor& part) {
  return std::any_of(block.weights.begin(), block.weights.end(),
                     [&](const WeightUse& w) { return w.input == part; });
}

// The forward values that a gradient graph reads, in the order of its inputs.
std::vector<std::pair<Tensor, Tensor>> values_read(const BlockGradient& gradient) {
  std::vector<std::pair<Tensor, Tensor>> result;  // {input, tensor of the block}
  const Tensors inputs = gradient.graph.graph().inputs();
  const auto& expected = gradient.graph.grad_graph_info().expected_inputs();
  for (size_t i = 0; i < expected.size(); ++i) {
    if (expected[i].type == Connection::kFwd)
      result.emplace_back(inputs[i], expected[i].fwd_tensor);
  }
  return result;
}

}  // namespace

RemoteActivations::RemoteActivations(const Cut& cut, const BlockGradients& gradients,
                                     int64_t min_elements, Stores stores) {
  for (const BlockId b : cut.blocks.ids()) {
    if (!gradients[b]) continue;
    for (const auto& [input, part] : values_read(*gradients[b])) {
      if (!is_weight(cut.blocks[b], part) && input.elements() >= min_elements)
        stored_after_[value_of(cut.blocks[b], part)] = b;
    }
  }
  for (const BlockId b : cut.blocks.ids()) {
    for (const auto* list : {&cut.blocks[b].inputs, &cut.blocks[b].outputs}) {
      for (const BlockValue& v : *list) {
        const auto found = stored_after_.find({v.whole.graph_id(), v.whole.id()});
        if (found == stored_after_.end()) continue;
        BlockId& block = found->second;
        block = stores == Stores::kAtOnce ? std::min(block, b) : std::max(block, b);
      }
    }
  }
  std::erase_if(stored_after_,
                [&](const auto& use) { return BlockId(use.second + 1) == cut.blocks.end_id(); });
}

bool RemoteActivations::stores(const Value& value, BlockId block) const {
  const auto found = stored_after_.find(value);
  return found != stored_after_.end() && found->second == block;
}

RemoteBuffer RemoteActivations::buffer(const Value& value, const TensorSpec& spec, Ir ir) {
  const auto found = buffers_.find(value);
  if (found != buffers_.end()) return found->second;
  return buffers_.emplace(value, ir.remote_buffer(spec, entries_)).first->second;
}

MicroBatch::MicroBatch(Graph& graph, const Cut& cut, const BlockGradients& gradients,
                       MicroBatchValues values, RemoteActivations* activations, IoMode io_mode,
                       RemoteEntry entry)
    : graph_(graph),
      cut_(cut),
      gradients_(gradients),
      values_(std::move(values)),
      activations_(activations),
      io_mode_(io_mode),
      entry_(std::move(entry)) {}

std::vector<MicroBatch::Value> MicroBatch::inputs(const BlockGraph& block) {
  std::vector<Value> result;
  for (const BlockValue& v : block.inputs) result.push_back(value(v.whole));
  return result;
}

std::vector<MicroBatch::Value> MicroBatch::outputs(const BlockGraph& block,
                                                   const std::optional<BlockGradient>& gradient) {
  std::vector<Value> result;
  for (const BlockValue& v : block.outputs) result.push_back(value(v.whole));
  for (const Value& v : kept(block, gradient)) {
    if (v.first == block.graph.graph().id()) result.push_back(v);
  }
  return result;
}

std::vector<MicroBatch::Value> MicroBatch::kept(const BlockGraph& block,
                                                const std::optional<BlockGradient>& gradient) {
  std::vector<Value> result;
  if (!gradient) return result;
  for (const auto& [input, part] : values_read(*gradient)) {
    if (!is_weight(block, part)) result.push_back(value_of(block, part));
  }
  return result;
}

void MicroBatch::forward(BlockId b, const Weights& weights) {
  const BlockGraph& block = cut_.blocks[b];
  TensorMap given;
  for (const BlockValue& v : block.inputs) given.emplace_back(v.part, (*this)[v.whole]);
  for (const WeightUse& w : block.weights) given.emplace_back(w.input, weights(w.key));
  const CallSiteInfo call = block.graph.call_with_info(&graph_, given);
  for (size_t i = 0; i < block.outputs.size(); ++i)
    values_.forward.emplace(value(block.outputs[i].whole), call.output(static_cast<int>(i)));
  if (gradients_[b]) {
    for (const auto& [input, part] : values_read(*gradients_[b])) {
      if (!is_weight(block, part))
        values_.forward.emplace(value_of(block, part), call.graph_to_parent(part));
    }
  }
  if (activations_ != nullptr) store_activations(b);
}

void MicroBatch::store_activations(BlockId b) {
  const BlockGraph& block = cut_.blocks[b];
  const Graph::IoScope scope(graph_, io_mode_);
  std::set<Value> stored;
  const auto store = [&](const Value& value) {
    if (!activations_->stores(value, b) || !stored.insert(value).second) return;
    const Tensor& t = values_.forward.at(value);
    graph_.remote_store(activations_->buffer(value, t.spec(), graph_.ir()), entry_, t);
  };
  for (const auto* list : {&block.inputs, &block.outputs}) {
    for (const BlockValue& v : *list) store(value(v.whole));
  }
  for (const Value& v : kept(block, gradients_[b])) store(v);
}

// A forward value for the gradient of block `b`.
Tensor MicroBatch::activation(BlockId b, const Tensor& part) {
  const Value value = value_of(cut_.blocks[b], part);
  if (activations_ == nullptr || !activations_->has(value)) return values_.forward.at(value);
  Tensor& t = loaded_[value];
  if (!t.valid()) {
    const Graph::IoScope scope(graph_, io_mode_);
    t = graph_.remote_load(activations_->buffer(value, part.spec(), graph_.ir()), entry_,
                           part.name());
  }
  return t;
}

MicroBatch::ByUse MicroBatch::backward(BlockId b, const Weights& weights, const ByUse& accumulators,
                                       const Tensor& counter) {
  ByUse returned;
  if (!gradients_[b]) return returned;
  const BlockGradient& gradient = *gradients_[b];
  const BlockGraph& block = cut_.blocks[b];
  const auto name = [&](size_t i) { return block.weights[gradient.weights[i]].name(); };
  TensorMap given;
  for (const TakenGradient& t : gradient.taken) {
    given.emplace_back(t.input,
                       t.loss.valid() ? (*this)[t.loss] : values_.gradients.at(t.value.whole.id()));
  }
  if (gradient.counter.valid()) given.emplace_back(gradient.counter, counter);
  for (size_t i = 0; i < gradient.accumulators.size(); ++i)
    given.emplace_back(gradient.accumulators[i], accumulators.at(name(i)));
  for (const auto& [input, part] : values_read(gradient)) {
    const auto w = std::find_if(block.weights.begin(), block.weights.end(),
                                [p = part](const WeightUse& use) { return use.input == p; });
    given.emplace_back(input, w != block.weights.end() ? weights(w->key) : activation(b, part));
  }
  const Tensors made = [&] {
    const Graph::ProvenanceScope scope(graph_, {.role = OpRole::kGradient});
    return gradient.graph.call(&graph_, given);
  }();
  for (size_t i = 0; i < gradient.inputs.size(); ++i)
    values_.gradients.insert_or_assign(gradient.inputs[i].id(), made[i]);
  for (size_t i = gradient.inputs.size(); i < made.size(); ++i)
    returned.emplace(name(i - gradient.inputs.size()), made[i]);
  return returned;
}

}  // namespace sluice::train
