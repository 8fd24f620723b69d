#pragma once
#include <cstdint>
#include <map>
#include <vector>

#include "sluice/transforms/values.h"

namespace sluice::transforms {

/// A set of small numbers.
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

 private:
  std::vector<uint64_t> words_;
};

/// Which inputs of a graph its results depend on in a way that has a gradient (a repeat counts as
/// one: whether its missing gradient matters shows later).
struct GraphDependence {
  std::vector<IndexSet> outputs;       ///< For each output, the inputs.
  std::vector<IndexSet> final_inputs;  ///< For each input, the inputs that its storage depends on
                                       ///< when the graph ends.
};

/// A differentiable path through an op.
struct Edge {
  size_t input = 0;
  Value made;
};

/// The paths of gradients through graphs and the graphs that they call. Describes them as they were
/// when first asked.
class Dependence {
 public:
  const GraphDependence& of(const Graph& graph);
  std::vector<Edge> edges(const Graph& graph, const Op& op);

  /// Values that depend on the given ones.
  ValueTable<char> downstream(const Graph& graph, const std::vector<Value>& from);
  /// Values that the given ones depend on.
  ValueTable<char> upstream(const Graph& graph, const std::vector<Value>& of);

 private:
  std::map<GraphId, GraphDependence> known_;
};

}  // namespace sluice::transforms
