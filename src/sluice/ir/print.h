#pragma once
#include <string>
#include <utility>
#include <vector>

#include "sluice/ir/ir.h"

namespace sluice {

/// The schedule of a graph as the documents print it (no trailing newline). `named` are the inputs that print as
/// "key=%i", sorted by key.
std::string print_schedule(const Graph& graph,
                           const std::vector<std::pair<std::string, Tensor>>& named = {});

/// Graphviz text of a graph: one node an op, one edge a tensor.
std::string to_dot(const Graph& graph);

}  // namespace sluice
