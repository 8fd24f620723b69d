#pragma once
#include <string>
#include <utility>
#include <vector>

#include "sluice/ir/ir.h"

namespace sluice {

/// Returns the schedule of a graph in the format of the documents, without a trailing newline.
/// `named` gives the inputs that print as "key=%i", sorted by key.
std::string print_schedule(const Graph& graph,
                           const std::vector<std::pair<std::string, Tensor>>& named = {});

/// Returns the Graphviz text of a program: a cluster for each graph that an entry reaches, a node
/// for each op, and an edge from the op that made a tensor's version to each op that reads it.
std::string to_dot(const Ir& ir);

}  // namespace sluice
