#pragma once
#include <vector>

#include "sluice/ir/op_def.h"

namespace sluice {

/// The arithmetic for floating-point operands.
enum class Precision : uint8_t {
  kFloat,   ///< float, in the kernels that define the bits; an op rounds its f16 and bf16 results
            ///< once.
  kDouble,  ///< double for every floating-point dtype, never rounded to the dtype; to judge
            ///< accuracy.
};

/// The dtype that stores a tensor of `dtype` during a computation: f32 or f64 (by `precision`) for
/// floating-point dtypes, `dtype` for the others.
DType working_dtype(DType dtype, Precision precision);

/// Converts `t` to the working dtype of its dtype.
HostTensor to_working(const HostTensor& t, Precision precision);

/// Runs the reference kernel of `view`. `operands` are arrays of the working dtypes, inputs then
/// outputs; an output that aliases an input is the same array. In kFloat, f16 and bf16 outputs are
/// rounded. `member` is the member of a collective's group that gets the result. Error{kUsage} if
/// the op has no reference kernel.
void run_kernel(const OpView& view, std::span<HostTensor* const> operands, Precision precision,
                int member = 0);

/// Runs one op on arrays. `specs` are the declared specs of the inputs; an array of another dtype
/// is converted. Returns the outputs: in kFloat in their declared dtype, in kDouble as f64 if they
/// are floating point. Error{kUsage} if specs and arrays do not match.
std::vector<HostTensor> run_op(const OpDef& def, const Attrs& attrs,
                               const std::vector<TensorSpec>& specs,
                               const std::vector<HostTensor>& inputs, Precision precision);
/// Runs one op on arrays, with the arrays' own specs as declared specs.
std::vector<HostTensor> run_op(const OpDef& def, const Attrs& attrs,
                               const std::vector<HostTensor>& inputs, Precision precision);

}  // namespace sluice
