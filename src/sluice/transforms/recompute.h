#pragma once
#include "sluice/transforms/autodiff.h"

namespace sluice::transforms {

struct RecomputeResult {
  GradGraphInfo info;
  /// {input of the original gradient graph, input of the new one} for all inputs that both have.
  /// These are gradients, forward inputs, and inputs that other transforms added (accumulators).
  TensorMap inputs;
};

/// Makes a gradient graph that does not need kept activations. It calls the forward graph again,
/// then the gradient graph.
///
/// Before: the forward graph can run twice. It uses no streams, has no remote stores, and writes no
/// inputs by reference.
/// After: a graph "<gradient graph>_recomp_subgraph(N)" with the same outputs and the same bits.
/// Its inputs begin with the gradients and forward inputs of `info.expected_inputs()`. The other
/// forward inputs and then the other inputs of the gradient graph follow, each sorted by name. All
/// keep their Pass and meta shape.
/// Error{kUsage} if the forward graph has one of those effects; the message names the op or the
/// input.
RecomputeResult recompute_graph(const GradGraphInfo& info);

}  // namespace sluice::transforms
