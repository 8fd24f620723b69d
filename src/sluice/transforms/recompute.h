#pragma once
#include "sluice/transforms/autodiff.h"

namespace sluice::transforms {

struct RecomputeResult {
  GradGraphInfo info;
  /// {input of the original gradient graph, input of the new one} for all inputs of the original that the new graph has:
  /// gradients, forward inputs, and what other transforms added (accumulators).
  TensorMap inputs;
};

/// A gradient graph that keeps no activations: it calls the forward graph again, then the gradient graph.
///
/// Before: the forward graph can be run twice: no stream entries, no remote stores, no inputs written by reference.
/// After: a graph "<gradient graph>_recomp_subgraph(N)" whose inputs are, in order, the gradients and the forward inputs
/// of `info.expected_inputs()`, the other forward inputs by name, and all other inputs of the gradient graph by name,
/// with their passing and meta shape. Same outputs, same bits.
/// Errors (kUsage): a forward graph with one of those effects, naming the op.
RecomputeResult recompute_graph(const GradGraphInfo& info);

}  // namespace sluice::transforms
