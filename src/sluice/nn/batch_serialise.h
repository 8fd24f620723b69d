#pragma once
#include <string>
#include <utility>
#include <vector>

#include "sluice/nn/graph_with_named_args.h"
#include "sluice/transforms/batch_serialise.h"

namespace sluice::nn {

using transforms::batch_serial_buffer;
using transforms::BatchHandle;
using transforms::BatchSerialiseOptions;
using transforms::BatchUpdate;
using transforms::RowOffset;

/// A phase (transforms/batch_serialise.h). It is called with a row; tensors that stay on the device
/// and variables of updates are bound by name: `phase.graph.bind(variables).call(&main, row)`.
struct BatchSerialResult {
  GraphWithNamedArgs graph;
  /// Tensors of the original graph, each with the buffer that holds it after a call.
  std::vector<std::pair<Tensor, BatchHandle>> stored_buffers;
  /// {input of the original graph, input of the new one}.
  TensorMap inputs;
  IoMode io_mode;    ///< The mode that the loop uses.
  std::string note;  ///< Why `io_mode` differs from the requested mode; empty if it does not.

  /// Returns `tensors`, inputs of the original graph, replaced by the inputs of the new graph.
  /// Error{kUsage} names a tensor that is not an input of the new graph.
  NamedTensors remap_tensors(const NamedTensors& tensors) const { return tensors.remap(inputs); }
};

BatchSerialResult batch_serialise(const GraphWithNamedArgs& graph,
                                  const BatchSerialiseOptions& options);

/// Creates the forward phase and the gradient phase of a layer. `named_inputs_for_grad_graph` has
/// tensors of the forward graph. Those that the gradient needs become named arguments of the
/// gradient phase under their keys. The other named arguments of this phase are those of `gradient`
/// (accumulators). The grad_graph_info() of the gradient phase maps its inputs to tensors of
/// `forward`.
std::pair<BatchSerialResult, BatchSerialResult> batch_serialise_fwd_and_grad(
    const GraphWithNamedArgs& forward, const GraphWithNamedArgs& gradient,
    const NamedTensors& named_inputs_for_grad_graph, const BatchSerialiseOptions& options);

}  // namespace sluice::nn
