#pragma once
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "sluice/transforms/autodiff.h"
#include "sluice/transforms/dependence.h"

namespace sluice::transforms {

using GradGraphs = std::map<GraphId, GradGraphInfo>;

/// The gradients that one graph must compute.
struct GradRequest {
  struct Gradient {
    TensorId handle;
    Value value;
  };
  std::vector<Gradient> provided;
  std::vector<Gradient> required;
  /// The treatment of unreachable gradients: an error, zeros, or no output for them (`kOmit`).
  enum class Missing { kError, kZeros, kOmit } missing = Missing::kError;
  /// Outputs from this index on may be inputs of the gradient graph and may be repeated.
  size_t shared_from = SIZE_MAX;
  /// Whether forward values may remain tensors inside the forward graph; otherwise they are
  /// appended to its outputs. The body of a loop keeps them inside, and its loop stores them.
  bool keeps_inside = false;
};

/// Whether a loop runs all its iterations, so that gradients pass. A while_loop may exit.
bool has_static_trips(const Op& loop);

/// Differentiates one graph. `called` has the gradient graphs of its callees. The user made those
/// in `given`; they are checked.
GradGraphInfo differentiate(Graph& forward, const GradRequest& request, const GradGraphs& called,
                            const std::set<GraphId>& given, Dependence& dependence);

/// Runs autodiff(), but outputs from index `shared_from` on may be inputs and may be repeated.
GradGraphInfo autodiff_sharing(Graph& graph, const AutodiffOptions& options, size_t shared_from);

}  // namespace sluice::transforms
