#include "sluice/nn/batch_serialise.h"

#include <algorithm>

namespace sluice::nn {
namespace {

// Adds the named inputs of the original graph that are still inputs of the phase.
void add_args(NamedTensors& args, const NamedTensors& original, const TensorMap& inputs) {
  original.for_each([&](const std::string& key, const Tensor& t) {
    const auto input = std::find_if(inputs.begin(), inputs.end(),
                                    [&](const auto& pair) { return pair.first == t; });
    if (input != inputs.end()) args.merge(key, input->second);
  });
}

BatchSerialResult with_names(const Ir& ir, transforms::BatchSerialised phase,
                             const std::vector<const NamedTensors*>& named,
                             std::shared_ptr<const transforms::GradGraphInfo> info = nullptr) {
  NamedTensors args;
  for (const NamedTensors* tensors : named) add_args(args, *tensors, phase.inputs);
  for (const auto& [name, input] : phase.updated) args.merge(name, input);
  return {GraphWithNamedArgs(ir.graph(phase.graph), args, std::move(info)), std::move(phase.stored),
          std::move(phase.inputs), phase.io_mode, std::move(phase.note)};
}

}  // namespace

BatchSerialResult batch_serialise(const GraphWithNamedArgs& graph,
                                  const BatchSerialiseOptions& options) {
  return with_names(graph.graph().ir(), transforms::batch_serialise(graph.graph(), options),
                    {&graph.args()});
}

std::pair<BatchSerialResult, BatchSerialResult> batch_serialise_fwd_and_grad(
    const GraphWithNamedArgs& forward, const GraphWithNamedArgs& gradient,
    const NamedTensors& named_inputs_for_grad_graph, const BatchSerialiseOptions& options) {
  const transforms::GradGraphInfo& info = gradient.grad_graph_info();
  require(&info.forward_graph() == &forward.graph(),
          "batch_serialise_fwd_and_grad: graph {} is the gradient of {}, not of {}",
          gradient.graph().name(), info.forward_graph().name(), forward.graph().name());
  auto [fwd, grad, connected] = transforms::batch_serialise_fwd_and_grad(
      info, named_inputs_for_grad_graph.values_flat(), options);
  const Ir ir = forward.graph().ir();
  return {with_names(ir, std::move(fwd), {&forward.args()}),
          with_names(ir, std::move(grad), {&gradient.args(), &named_inputs_for_grad_graph},
                     std::make_shared<const transforms::GradGraphInfo>(std::move(connected)))};
}

}  // namespace sluice::nn
