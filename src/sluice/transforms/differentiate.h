#pragma once
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "sluice/transforms/autodiff.h"
#include "sluice/transforms/dependence.h"

namespace sluice::transforms {

using GradGraphs = std::map<GraphId, GradGraphInfo>;

/// What is asked of the gradient of one graph.
struct GradRequest {
  struct Place {
    TensorId handle = -1;
    Value value;
  };
  std::vector<Place> provided;
  std::vector<Place> required;
  /// Instead of an error or zeros, `kOmit` leaves an unreachable gradient out of the outputs.
  enum class Missing { kError, kZeros, kOmit } missing = Missing::kError;
  /// Outputs from this one on may be inputs of the gradient graph or appear twice.
  size_t shared_from = SIZE_MAX;
};

/// Differentiates one graph, with the gradient graphs of those that it calls; the user made those of `given`.
GradGraphInfo differentiate(Graph& forward, const GradRequest& request, const GradGraphs& called,
                            const std::set<GraphId>& given, Dependence& dependence);

/// autodiff() whose outputs from `shared_from` on may be inputs or appear twice.
GradGraphInfo autodiff_sharing(Graph& graph, const AutodiffOptions& options, size_t shared_from);

}  // namespace sluice::transforms
