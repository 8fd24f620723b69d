#pragma once
#include <cstdint>
#include <map>
#include <vector>

#include "sluice/transforms/values.h"

namespace sluice::transforms {

/// A set of small integers.
class IndexSet {
 public:
  bool contains(size_t i) const {
    return i / 64 < words_.size() && (words_[i / 64] >> (i % 64) & 1) != 0;
  }
  void insert(size_t i) {
    if (i / 64 >= words_.size()) words_.resize(i / 64 + 1);
    words_[i / 64] |= uint64_t{1} << (i % 64);
  }
  void insert(const IndexSet& other) {
    if (other.words_.size() > words_.size()) words_.resize(other.words_.size());
    for (size_t i = 0; i < other.words_.size(); ++i) words_[i] |= other.words_[i];
  }
  bool meets(const IndexSet& other) const {
    for (size_t i = 0; i < words_.size() && i < other.words_.size(); ++i) {
      if ((words_[i] & other.words_[i]) != 0) return true;
    }
    return false;
  }
  bool operator==(const IndexSet&) const = default;

 private:
  std::vector<uint64_t> words_;
};

/// The inputs on which a graph's results depend, except through ops whose gradient is 0 by
/// definition. Ops without a gradient, such as while_loop, count here: Sweep reports an error if
/// their gradient is needed.
struct GraphDependence {
  std::vector<IndexSet> outputs;       ///< For each output: the inputs that it depends on.
  std::vector<IndexSet> final_inputs;  ///< For each input: the inputs that its storage depends on
                                       ///< at the end of the graph.
};

/// A differentiable path through an op.
struct Edge {
  size_t input = 0;
  Value made;
};

/// Operands of a loop on differentiable paths through its iterations. An operand counts if the
/// tensor that it has in the loop's wrapper graph is on a path in any iteration.
struct LoopPaths {
  IndexSet active;  ///< Operands that depend on one whose gradient is needed.
  IndexSet useful;  ///< Operands on whose new value a result with a gradient depends.
};

/// Finds differentiable paths through graphs and the graphs that they call. of() keeps its first
/// result for a graph, even if the graph changes later.
class Dependence {
 public:
  const GraphDependence& of(const Graph& graph);
  std::vector<Edge> edges(const Graph& graph, const Op& op);

  /// Returns the paths through a loop from the operands in `needed` to the operands in `provided`,
  /// whose values after the loop have a gradient.
  LoopPaths loop_paths(const Graph& graph, const Op& loop, IndexSet needed, IndexSet provided);
  /// Returns the values that depend on values in `from`.
  ValueTable<char> downstream(const Graph& graph, const std::vector<Value>& from);
  /// Returns the values on which values in `of` depend.
  ValueTable<char> upstream(const Graph& graph, const std::vector<Value>& of);

 private:
  /// For each operand of a loop: the operands on which its value after one iteration depends.
  std::vector<IndexSet> iteration(const Graph& graph, const Op& loop);

  std::map<GraphId, GraphDependence> known_;
};

}  // namespace sluice::transforms
