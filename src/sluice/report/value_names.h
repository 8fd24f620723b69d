#pragma once
#include <string>
#include <string_view>

// The names of values and graphs in a plan, such as "Block_subgraph(0)_bwd/Gradient___add_102".

namespace sluice::report {

bool is_digit(char c);
bool has(std::string_view text, std::string_view part);

/// Returns the name of a value within its graph: "Gradient___add_102".
std::string leaf_of(const std::string& tensor);
/// Returns the graph of a value: "Block_subgraph(0)_bwd"; empty for a variable.
std::string_view graph_of(std::string_view tensor);
/// Whether a graph is "<graph>_bwd" or "<graph>_bwd_1". A subgraph that a user names like that is
/// not: its number follows the name.
bool is_gradient_graph(std::string_view graph);
/// Returns the name that a graph was given: "rows" of
/// "rows_subgraph(30)__loop_wrapper_subgraph(31)".
std::string_view given_name(std::string_view graph);
/// Removes each "__t34", which distinguishes values of one name.
std::string without_numbers(std::string name);
/// Removes the number of an op and of its result from "gelu_103" and "nll_loss_126_1".
std::string op_of(std::string name);

/// Returns "fc.1 … fc.3": the first and the last name of a sorted set.
template <typename Names>
std::string range_of(const Names& names) {
  if (names.empty()) return "";
  return names.size() == 1 ? *names.begin() : *names.begin() + " … " + *names.rbegin();
}

/// Returns the module in a step's `where`: "fc.1" of "fc/1 layers.cc:31"; empty without one.
std::string module_in(const std::string& where);

}  // namespace sluice::report
