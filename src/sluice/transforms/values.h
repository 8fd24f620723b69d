#pragma once
#include <vector>

#include "sluice/ir/ir.h"

namespace sluice::transforms {

/// What a storage of a graph holds after its `version`-th write: what gradients are of.
struct Value {
  int32_t storage = -1;
  int64_t version = 0;
  bool operator==(const Value&) const = default;
};

/// The value that an op reads by an operand.
Value value_read(const Graph& graph, const Operand& operand);
/// The value that an op leaves behind under an output.
Value value_made(const Graph& graph, const Op& op, size_t output);
/// The value of a handle when it was made; of an output of the graph: when the graph ends.
Value value_of_handle(const Graph& graph, TensorId handle);
Value value_of_output(const Graph& graph, TensorId output);

/// The op that made `handle` as another name of an operand's storage, and which operand; null for a
/// root.
struct AliasStep {
  const Op* op = nullptr;
  size_t input = 0;
  size_t output = 0;
  bool writes = false;
};
AliasStep alias_step(const Graph& graph, TensorId handle);

/// How a handle's elements lie in its storage.
enum class Layout {
  kWhole,    ///< All elements in the order of the root: at most another shape.
  kPartial,  ///< Some elements, or in another order.
};
Layout layout_of(const Graph& graph, TensorId handle);

/// Whether no gradient passes a handle: a view without a gradient lies between it and its root
/// (`detach_`).
bool is_detached(const Graph& graph, TensorId handle);

bool has_gradient(const OpDef& def);

/// Whether a call of `graph` changes what is passed by reference for its input `i`.
bool writes_input(const Graph& graph, size_t i);
/// Whether an op changes operand `i`. A call that only passes it on by reference makes a version, but the same value.
bool changes(const Graph& graph, const Op& op, size_t i);
/// The first and the last version of a storage with the same contents as `version`.
struct VersionRange {
  int64_t first;
  int64_t last;
};
VersionRange same_contents(const Graph& graph, int32_t storage, int64_t version);

/// The name of a graph without its number: "Linear_bwd" of "Linear_subgraph(3)_bwd".
std::string base_name(const std::string& graph_name);

/// Verifies the Ir of a graph after a transform; in debug builds only.
void verify_transformed(const Graph& graph);

/// A table over the values of a graph; values that appear later read as T{}.
template <typename T>
class ValueTable {
 public:
  explicit ValueTable(const Graph& graph) : rows_(static_cast<size_t>(graph.storage_count())) {}

  T& operator[](const Value& v) {
    const auto s = static_cast<size_t>(v.storage);
    const auto n = static_cast<size_t>(v.version);
    if (s >= rows_.size()) rows_.resize(s + 1);
    if (n >= rows_[s].size()) rows_[s].resize(n + 1);
    return rows_[s][n];
  }
  T at(const Value& v) const {
    const auto s = static_cast<size_t>(v.storage);
    const auto n = static_cast<size_t>(v.version);
    return s < rows_.size() && n < rows_[s].size() ? rows_[s][n] : T{};
  }

 private:
  std::vector<std::vector<T>> rows_;
};

}  // namespace sluice::transforms
