#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sluice/transforms/autodiff.h"

namespace sluice::transforms {

/// The quantity that accumulators hold.
enum class Accumulation {
  kMean,  ///< The running mean since the counter was last set to zero.
  kSum,   ///< The sum since the accumulator was last set to zero. There is no counter.
};

/// Whether each call of the gradient graph adds 1 to the counter of a running mean.
enum class Counter {
  kAdvance,
  kKeep,  ///< The caller does so, once for all gradient graphs that share the counter.
};

struct AccumulationOptions {
  /// As in AutodiffOptions.
  std::optional<Tensors> grads_provided = {};
  /// Tensors whose gradients remain outputs of the gradient graph, in this order.
  Tensors grads_required = {};
  std::map<GraphId, GradGraphInfo> called_graphs = {};
  Unreachable unreachable = Unreachable::kError;
  Accumulation accumulation = Accumulation::kMean;
  Counter counter = Counter::kAdvance;  ///< With kMean only.
  /// By name: groups of replicas whose accumulators hold the same value. Absent: all replicas are
  /// one group.
  std::map<std::string, ReplicaGrouping> replica_groupings = {};
};

/// A by-reference input that the transform added. The caller keeps this state and sets it to zero
/// at first.
struct AddedInput {
  std::string name = {};  ///< "mean_accum_counter", then "accum.<name>".
  TensorSpec spec = {};
  Tensor input = {};
  std::optional<ReplicaGrouping> group = {};
};

struct AccumulationResult {
  GradGraphInfo info;
  std::vector<AddedInput>
      added;  ///< The counter (if any), then one accumulator per tensor, in the order given.
};

/// Runs autodiff(), but accumulates the gradients of `tensors` into state instead of returning
/// them.
///
/// Before: as for autodiff. `names[i]` is the key of `tensors[i]`; an empty list means the tensors'
/// names, sanitised.
/// After: the gradient graph also has the by-reference inputs `mean_accum_counter` (f32, ()) and
/// `accum.<name>` (the tensor's spec). Its outputs are the gradients of `grads_required`. With s
/// the counter, a call computes accum ← s/(s+1)·accum + gradient/(s+1). It does so as soon as a
/// gradient is computed, so that few gradients are in memory at a time. With Counter::kAdvance it
/// computes s ← s + 1 last. To start a new mean, set only the counter to zero. With kSum: accum ←
/// accum + gradient.
/// Error{kUsage} as for autodiff, and if `names` and `tensors` differ in length.
AccumulationResult autodiff_with_accumulation(Graph& graph, const Tensors& tensors,
                                              const std::vector<std::string>& names = {},
                                              const AccumulationOptions& options = {});

}  // namespace sluice::transforms
