#include "sluice/train/strategies/micro_batch.h"

#include "sluice/ir/call.h"
#include "sluice/transforms/autodiff.h"

namespace sluice::train {

void MicroBatch::forward(const nn::NamedTensors& weights) {
  for (const BlockGraph& block : cut_.blocks) {
    TensorMap given;
    for (const BlockValue& v : block.inputs) given.emplace_back(v.part, values_.at(v.whole.id()));
    for (const WeightUse& w : block.weights) given.emplace_back(w.input, weights[w.key]);
    calls_.push_back(block.graph.call_with_info(&graph_, given));
    for (size_t i = 0; i < block.outputs.size(); ++i)
      values_.emplace(block.outputs[i].whole.id(), calls_.back().output(static_cast<int>(i)));
  }
}

MicroBatch::ByUse MicroBatch::backward(const ByUse& accumulators, const Tensor& counter) {
  ByUse returned;
  std::map<TensorId, Tensor> chains;  // Gradients of values, by network tensor.
  for (size_t b = gradients_.size(); b-- > 0;) {
    if (!gradients_[b]) continue;
    const BlockGradient& gradient = *gradients_[b];
    const auto name = [&](size_t i) { return cut_.blocks[b].weights[gradient.weights[i]].name(); };
    TensorMap given;
    for (const TakenGradient& t : gradient.taken) {
      given.emplace_back(t.input,
                         t.loss.valid() ? values_.at(t.loss.id()) : chains.at(t.value.whole.id()));
    }
    if (gradient.counter.valid()) given.emplace_back(gradient.counter, counter);
    for (size_t i = 0; i < gradient.accumulators.size(); ++i)
      given.emplace_back(gradient.accumulators[i], accumulators.at(name(i)));
    const Tensors made = gradient.graph.call(
        &graph_, given, gradient.graph.grad_graph_info().inputs_dict(calls_[b]));
    for (size_t i = 0; i < gradient.inputs.size(); ++i)
      chains.insert_or_assign(gradient.inputs[i].id(), made[i]);
    for (size_t i = gradient.inputs.size(); i < made.size(); ++i)
      returned.emplace(name(i - gradient.inputs.size()), made[i]);
  }
  return returned;
}

}  // namespace sluice::train
