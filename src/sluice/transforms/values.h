#pragma once
#include <vector>

#include "sluice/ir/ir.h"

namespace sluice::transforms {

/// The contents of a storage after its `version`-th write. Gradients are computed per value.
struct Value {
  StorageId storage;
  Version version{0};
  bool operator==(const Value&) const = default;
};

/// Returns the value that an op reads through an operand.
Value value_read(const Graph& graph, const Operand& operand);
/// Returns the value that an op leaves in an output.
Value value_made(const Graph& graph, const Op& op, size_t output);
/// value_of_handle(): the value when the handle was made. value_of_output(): the value when the
/// graph ends.
Value value_of_handle(const Graph& graph, TensorId handle);
Value value_of_output(const Graph& graph, TensorId output);

/// The op that made `handle` as another name of an operand's storage, and the index of that
/// operand. Null if `handle` is a root.
struct AliasStep {
  const Op* op = nullptr;
  int input = 0;
  int output = 0;
  bool writes = false;
};
AliasStep alias_step(const Graph& graph, TensorId handle);

/// The order of a handle's elements in its storage.
enum class Layout {
  kWhole,    ///< All elements, in the order of the root. The shape may differ.
  kPartial,  ///< Some of the elements, or another order.
};
Layout layout_of(const Graph& graph, TensorId handle);

/// Whether a handle passes no gradient, because a view whose gradient is 0 (`detach_`) is between
/// it and its root.
bool is_detached(const Graph& graph, TensorId handle);

/// Whether a call of `graph` changes the tensor passed by reference for its input `i`.
bool writes_input(const Graph& graph, size_t i);
/// Whether an op changes operand `i`. A call that does not write its by-reference operand makes a
/// new version with the same value.
bool changes(const Graph& graph, const Op& op, size_t i);
/// The first and last version of a storage that have the contents of `version`.
struct VersionRange {
  Version first;
  Version last;
};
VersionRange same_contents(const Graph& graph, StorageId storage, Version version);

/// Returns the index of a tensor in `ids`, or their number if it is not in them.
size_t position(const std::vector<TensorId>& ids, const Tensor& t);

/// Returns the name of a graph without its number: "Linear_bwd" of "Linear_subgraph(3)_bwd".
std::string base_name(const std::string& graph_name);

/// Verifies the Ir of a graph after a transform, in debug builds only.
void verify_transformed(const Graph& graph);

/// A table with an entry per value of a graph. Values without an entry read as T{}.
template <typename T>
class ValueTable {
 public:
  explicit ValueTable(const Graph& graph) : rows_(graph.storages().size()) {}

  T& operator[](const Value& v) {
    while (!rows_.contains(v.storage)) rows_.emplace_back();
    Ids<Version, T>& row = rows_[v.storage];
    while (!row.contains(v.version)) row.push_back(T{});
    return row[v.version];
  }
  T at(const Value& v) const {
    if (!rows_.contains(v.storage)) return T{};
    const Ids<Version, T>& row = rows_[v.storage];
    return row.contains(v.version) ? row[v.version] : T{};
  }

 private:
  Ids<StorageId, Ids<Version, T>> rows_;
};

}  // namespace sluice::transforms
