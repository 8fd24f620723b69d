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

/// Returns the Graphviz text of a graph: one node per op, one edge per operand.
std::string to_dot(const Graph& graph);

}  // namespace sluice
