#pragma once
#include <string_view>
#include <vector>

#include "sluice/ir/ir.h"

namespace sluice::ops {

/// Definitions of all operators of ops/, in the order of the families in ops/CMakeLists.txt.
const std::vector<const OpDef*>& all_ops();

/// Returns the definition of an operator type ("MatMul"), or null if the type is unknown. Types
/// built into the IR and registered operators (register_op.h) are included.
const OpDef* find_op(std::string_view type);

/// Appends an op to the graph of its first operand. Error{kUsage} if `inputs` is empty.
Tensors emit(const OpDef& def, const std::vector<TensorArg>& inputs, Attrs attrs = {},
             EmitOptions options = {});

/// Calls emit() for an operator with one output and an options struct; returns that output.
template <typename Options>
Tensor emit_one(const OpDef& def, const std::vector<TensorArg>& inputs, const Options& options) {
  return emit(def, inputs, to_attrs(options))[0];
}
inline Tensor emit_one(const OpDef& def, const std::vector<TensorArg>& inputs) {
  return emit(def, inputs)[0];
}

/// Returns `ts` as the operands of a call at `where`. Functions that take a vector use it: the
/// elements of the vector may have been made elsewhere.
std::vector<TensorArg> at_call(std::vector<TensorArg> ts, const std::source_location& where);

/// For reference kernels: maps the flat index of an output element to the flat index of the operand
/// element that broadcasts to it. The operand has shape `in`, the output has shape `out`.
class BroadcastIndex {
 public:
  BroadcastIndex(const Shape& in, const Shape& out);
  int64_t operator()(int64_t flat) const;

 private:
  std::vector<int64_t> dims_;     ///< Dimensions of `out`.
  std::vector<int64_t> strides_;  ///< Strides of `in` along these axes: 0 on broadcast axes.
  bool same_ = false;
};

/// Sums `t` over its broadcast axes, so that the result has shape `shape`. `shape` must broadcast
/// to the shape of `t`; Error{kUsage} otherwise. This is the gradient of a broadcast operand.
Tensor reduce_to(const Tensor& t, const Shape& shape);

}  // namespace sluice::ops
