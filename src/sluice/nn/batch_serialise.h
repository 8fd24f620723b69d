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
using transforms::RowOffset;

/// A phase (transforms/batch_serialise.h) that is called with a row and, by name, with what stays
/// on the device: `phase.graph.bind(variables).call(&main, row)`.
struct BatchSerialResult {
  GraphWithNamedArgs graph;
  /// Tensors of the original graph and the buffer that holds them after a call.
  std::vector<std::pair<Tensor, BatchHandle>> stored_buffers;
  /// {input of the original graph, input of the new one}.
  TensorMap inputs;
  IoMode io_mode;    ///< As the loop was made.
  std::string note;  ///< Why this is not the mode that was asked for; else empty.

  /// Inputs of the original graph that are inputs of the new one, as those; Error{kUsage} naming
  /// another tensor.
  NamedTensors remap_tensors(const NamedTensors& tensors) const { return tensors.remap(inputs); }
};

BatchSerialResult batch_serialise(const GraphWithNamedArgs& graph,
                                  const BatchSerialiseOptions& options);

/// Both phases of a layer. Tensors of `named_inputs_for_grad_graph` (of the forward graph) that the
/// gradient needs become named arguments of its phase, under their keys, beside its own
/// (accumulators); its grad_graph_info() connects them with the forward graph that was given.
std::pair<BatchSerialResult, BatchSerialResult> batch_serialise_fwd_and_grad(
    const GraphWithNamedArgs& forward, const GraphWithNamedArgs& gradient,
    const NamedTensors& named_inputs_for_grad_graph, const BatchSerialiseOptions& options);

}  // namespace sluice::nn
