#pragma once
#include <memory>
#include <optional>
#include <string>

#include "sluice/base/provenance.h"
#include "sluice/ir/graph.h"

namespace sluice {

/// Fields that a ProvenanceScope sets; absent ones stay.
struct Graph::ProvenanceFields {
  std::optional<OpRole> role = {};
  std::optional<std::string> block = {};
  std::optional<std::string> variable = {};
  Instance at = {};             ///< Added to the present one.
  Instance per_iteration = {};  ///< Loops: difference between iterations.
};

/// While a ProvenanceScope exists, ops added to the graph have these fields in their provenance.
class Graph::ProvenanceScope {
 public:
  ProvenanceScope(Graph& graph, const ProvenanceFields& fields);
  ~ProvenanceScope();
  ProvenanceScope(const ProvenanceScope&) = delete;
  ProvenanceScope& operator=(const ProvenanceScope&) = delete;

 private:
  Graph& graph_;
  std::unique_ptr<Provenance> previous_;
};

}  // namespace sluice
