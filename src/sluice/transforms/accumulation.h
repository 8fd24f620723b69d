#pragma once
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/transforms/autodiff.h"

namespace sluice::transforms {

/// The quantity that accumulators hold. The formulas are those of an accumulator a, a gradient g
/// and the number k of earlier gradients. They compute in float32 and round once to the
/// accumulator's dtype.
enum class Accumulation {
  kSum,          ///< a + g. There is no counter.
  kMean,         ///< a + g/N for AccumulationOptions::steps N. There is no counter.
  kRunningMean,  ///< (k/(k+1))·a + g/(k+1): the mean since the counter was last set to zero.
};

/// "sum", "mean" or "running_mean".
std::string_view to_string(Accumulation accumulation);

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
  Accumulation accumulation = Accumulation::kRunningMean;
  int64_t steps = 1;                    ///< Gradients of a mean, with kMean only.
  Counter counter = Counter::kAdvance;  ///< With kRunningMean only.
  /// Dtype of each accumulator, in the order of the tensors. Empty: the tensors' dtypes.
  std::vector<DType> dtypes = {};
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
/// `accum.<name>` (the tensor's shape). Its outputs are the gradients of `grads_required`. With s
/// the counter, a call computes accum ← s/(s+1)·accum + gradient/(s+1). It does so as soon as a
/// gradient is computed, so that few gradients are in memory at a time. With Counter::kAdvance it
/// computes s ← s + 1 last. To start a new mean, set only the counter to zero. Accumulation has the
/// other formulas. A gradient is rounded to the dtype of its accumulator before it is added.
/// Error{kUsage} as for autodiff, and if `names` or `dtypes` and `tensors` differ in length, if
/// `steps` is below 1, or if a dtype is not floating point.
AccumulationResult autodiff_with_accumulation(Graph& graph, const Tensors& tensors,
                                              const std::vector<std::string>& names = {},
                                              const AccumulationOptions& options = {});

}  // namespace sluice::transforms
