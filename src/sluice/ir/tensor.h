#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <source_location>
#include <string>
#include <vector>

#include "sluice/base/ids/id.h"
#include "sluice/base/shape.h"

namespace sluice {

class Graph;
class Ir;
struct IrState;

/// Index of a graph in its Ir.
using GraphId = Id<struct GraphTag>;
/// Index of a tensor in its graph.
using TensorId = Id<struct TensorTag>;
/// Index of a storage in its graph, and the number of writes to it so far.
using StorageId = Id<struct StorageTag>;
using Version = Id<struct VersionTag, int64_t>;
/// Identifies an op in its Ir; starts at 100.
using OpId = Id<struct OpTag, int64_t>;
/// Position of an op in its graph.
using OpIndex = Id<struct OpIndexTag, int64_t>;

/// A cheap handle to a tensor of a graph, with value semantics. It names storage: if an updating op
/// writes a tensor, existing handles to the tensor see the new value. A handle may outlive its Ir:
/// every use is then Error{kUsage}. Handles compare and hash by identity.
class Tensor {
 public:
  Tensor() = default;

  /// False for a default-constructed handle.
  bool valid() const { return id_.valid(); }
  /// The graph of the tensor. This function and those below throw Error{kUsage} if the handle is
  /// empty or its Ir no longer exists.
  Graph& graph() const;
  /// References to the name, the spec and its shapes are valid as long as the Ir, also if ops are
  /// added.
  const std::string& name() const;
  const TensorSpec& spec() const;
  const Shape& shape() const { return spec().shape; }
  DType dtype() const { return spec().dtype; }
  /// The shape of the whole tensor if this is a shard; empty otherwise.
  const Shape& meta_shape() const { return spec().meta_shape; }
  int rank() const { return shape().rank(); }
  int64_t elements() const { return spec().elements(); }
  /// Dimension of an axis, which may count from the end.
  int64_t dim(int axis) const { return shape().dim(axis); }

  TensorId id() const { return id_; }
  GraphId graph_id() const { return graph_; }

  bool operator==(const Tensor& other) const;
  size_t hash() const;

 private:
  friend class Graph;
  Tensor(std::weak_ptr<IrState> ir, uint64_t ir_id, GraphId graph, TensorId id)
      : ir_(std::move(ir)), ir_id_(ir_id), graph_(graph), id_(id) {}

  std::weak_ptr<IrState> ir_;
  uint64_t ir_id_ = 0;
  GraphId graph_;
  TensorId id_;
};

using Tensors = std::vector<Tensor>;

/// Returns "Tensor[weight popxl.dtypes.float32 (4, 32)]", the format of the documents.
std::string to_string(const Tensor& tensor);

/// A tensor given to an operator, with the source line of the call. Calls of operators construct it
/// implicitly.
struct TensorArg {
  TensorArg(Tensor t, std::source_location w = std::source_location::current())  // NOLINT: implicit
      : tensor(std::move(t)), where(w) {}
  Tensor tensor;
  std::source_location where;

  const Tensor* operator->() const { return &tensor; }
  operator const Tensor&() const { return tensor; }  // NOLINT: implicit
};

}  // namespace sluice

template <>
struct std::hash<sluice::Tensor> {
  size_t operator()(const sluice::Tensor& t) const { return t.hash(); }
};
