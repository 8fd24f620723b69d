#pragma once
#include <string_view>
#include <vector>

#include "sluice/ir/ir.h"

namespace sluice::ops {

/// Every operator of ops/, by family in the order of ops/CMakeLists.txt.
const std::vector<const OpDef*>& all_ops();

/// The definition of a type ("MatMul"), built-in ones included; null if there is none.
const OpDef* find_op(std::string_view type);

/// Appends an op to the graph of its first operand; Error{kUsage} if there is none.
Tensors emit(const OpDef& def, const std::vector<TensorArg>& inputs, Attrs attrs = {},
             EmitOptions options = {});

/// The same for an operator with one output and an options struct.
template <typename Options>
Tensor emit_one(const OpDef& def, const std::vector<TensorArg>& inputs, const Options& options) {
  return emit(def, inputs, to_attrs(options))[0];
}
inline Tensor emit_one(const OpDef& def, const std::vector<TensorArg>& inputs) {
  return emit(def, inputs)[0];
}

/// For reference kernels: element `flat` of an output of shape `out` is which element of an operand of shape `in` that
/// broadcasts to it.
class BroadcastIndex {
 public:
  BroadcastIndex(const Shape& in, const Shape& out);
  int64_t operator()(int64_t flat) const;

 private:
  std::vector<int64_t> dims_;     ///< Of `out`.
  std::vector<int64_t> strides_;  ///< Of `in` seen as `out`: 0 on broadcast axes.
  bool same_ = false;
};

/// A sum over broadcast axes: `t` reduced to `shape`, which broadcasts to t's. The gradient of a broadcast operand.
Tensor reduce_to(const Tensor& t, const Shape& shape);

}  // namespace sluice::ops
