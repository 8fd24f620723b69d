#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sluice/transforms/autodiff.h"

namespace sluice::transforms {

/// What accumulators hold.
enum class Accumulation {
  kMean,  ///< The running mean since the counter was last zeroed.
  kSum,   ///< The sum since the accumulator was last zeroed; there is no counter.
};

struct AccumulationOptions {
  /// As in AutodiffOptions.
  std::optional<Tensors> grads_provided;
  /// Tensors whose gradients the gradient graph still gives as outputs, in this order.
  Tensors grads_required;
  std::map<GraphId, GradGraphInfo> called_graphs;
  Unreachable unreachable = Unreachable::kError;
  Accumulation accumulation = Accumulation::kMean;
  /// By name: replicas whose accumulators hold the same value; all, if absent.
  std::map<std::string, ReplicaGrouping> replica_groupings;
};

/// A by-reference input that the transform added: state that the caller keeps, zeros at first.
struct AddedInput {
  std::string name;  ///< "mean_accum_counter", then "accum.<name>".
  TensorSpec spec;
  Tensor input;
  std::optional<ReplicaGrouping> group;
};

struct AccumulationResult {
  GradGraphInfo info;
  std::vector<AddedInput>
      added;  ///< The counter (if any), then one accumulator per tensor, in the order given.
};

/// autodiff() whose gradients of `tensors` go into running means instead of outputs.
///
/// Before: as for autodiff; `names[i]` is the key of `tensors[i]` (empty list: their names, sanitised).
/// After: the gradient graph has further by-reference inputs `mean_accum_counter` (f32, ()) and `accum.<name>` (the
/// tensor's spec). With s the counter, a call does accum ← s/(s+1)·accum + gradient/(s+1), each as soon as its gradient
/// is there, so gradients do not pile up, and last s ← s + 1. So zeroing the counter alone starts a new mean.
/// With kSum: accum ← accum + gradient. Its outputs are the gradients of `grads_required`. Errors as for autodiff.
AccumulationResult autodiff_with_accumulation(Graph& graph, const Tensors& tensors,
                                              const std::vector<std::string>& names = {},
                                              const AccumulationOptions& options = {});

}  // namespace sluice::transforms
