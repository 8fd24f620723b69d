#pragma once
#include <vector>

#include "sluice/ir/op_def.h"

namespace sluice {

/// In what floating-point operands are computed.
enum class Precision : uint8_t {
  kFloat,   ///< float, by the kernels that define the bits; f16 and bf16 results are rounded once
            ///< after each op.
  kDouble,  ///< double throughout, whatever the dtype, without rounding: judges accuracy.
};

/// The dtype that holds a tensor of `dtype` while it is computed with: f32 or f64 for floating
/// point, else itself.
DType working_dtype(DType dtype, Precision precision);

/// The elements of `t` in the working dtype of its own dtype.
HostTensor to_working(const HostTensor& t, Precision precision);

/// Runs the reference kernel of `view`. `operands` are arrays of the working dtypes, inputs then
/// outputs; an output that aliases an input has its address. Rounds outputs of f16 and bf16 in
/// float. Error{kUsage} if there is no kernel. `member`: of a collective, who gets the result.
void run_kernel(const OpView& view, std::span<HostTensor* const> operands, Precision precision,
                int member = 0);

/// One op on arrays. `specs` are the inputs' declared specs; arrays of another dtype are converted.
/// Outputs are in the declared dtype in float, floating-point ones in f64 in double.
std::vector<HostTensor> run_op(const OpDef& def, const Attrs& attrs,
                               const std::vector<TensorSpec>& specs,
                               const std::vector<HostTensor>& inputs, Precision precision);
/// The same with each input's own spec.
std::vector<HostTensor> run_op(const OpDef& def, const Attrs& attrs,
                               const std::vector<HostTensor>& inputs, Precision precision);

}  // namespace sluice
