#pragma once
#include "sluice/ops/op.h"

namespace sluice::ops {

const OpDef& bitwise_and_def();
const OpDef& bitwise_or_def();
const OpDef& bitwise_xor_def();
const OpDef& bitwise_not_def();
const OpDef& shift_left_def();
const OpDef& shift_right_def();

/// Functions of the bits of int32, uint32 and uint8 tensors of one dtype, with numpy's
/// broadcasting. bool tensors have the logical functions of compare.h. There is no gradient.
Tensor bitwise_and(TensorArg lhs, TensorArg rhs);
Tensor bitwise_or(TensorArg lhs, TensorArg rhs);
Tensor bitwise_xor(TensorArg lhs, TensorArg rhs);
Tensor bitwise_not(TensorArg x);
/// Shift the bits of lhs by rhs places. shift_right repeats the sign of an int32. A shift by the
/// number of bits or more, or by a negative number, moves all bits out: the result is 0, or -1 for
/// a right shift of a negative number.
Tensor shift_left(TensorArg lhs, TensorArg rhs);
Tensor shift_right(TensorArg lhs, TensorArg rhs);

}  // namespace sluice::ops
