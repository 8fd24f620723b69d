#include "sluice/interp/run_op.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "sluice/base/flush_to_zero.h"

namespace sluice {

DType working_dtype(DType dtype, Precision precision) {
  if (!is_float(dtype)) return dtype;
  return precision == Precision::kFloat ? f32 : f64;
}

HostTensor to_working(const HostTensor& t, Precision precision) {
  const DType dtype = working_dtype(t.dtype(), precision);
  return t.dtype() == dtype ? t : t.cast(dtype);
}

void run_kernel(const OpView& view, std::span<HostTensor* const> operands, Precision precision,
                int member) {
  const OpDef& def = view.def();
  const ReferenceFn kernel =
      precision == Precision::kFloat ? def.reference_float : def.reference_double;
  require(kernel != nullptr, "{}: has no reference kernel", def.name);
  std::vector<void*> addresses;
  for (HostTensor* t : operands) addresses.push_back(t->bytes().data());
  if (precision == Precision::kDouble) {
    kernel(KernelArgs(view, addresses, member));
    return;
  }
  const FlushToZero mode;
  kernel(KernelArgs(view, addresses, member));
  for (int i = 0; i < view.outputs(); ++i) {
    const DType dtype = view.output(i).dtype;
    if (dtype != f16 && dtype != bf16) continue;
    for (float& x : at(operands, view.inputs() + i)->as<float>()) x = round_to(dtype, x);
  }
}

std::vector<HostTensor> run_op(const OpDef& def, const Attrs& attrs,
                               const std::vector<TensorSpec>& specs,
                               const std::vector<HostTensor>& inputs, Precision precision) {
  require(specs.size() == inputs.size(), "{}: must have one array for each of {} specs, got {}",
          def.name, specs.size(), inputs.size());
  const std::vector<TensorSpec> out_specs = def.infer(OpView(def, attrs, specs));
  const OpView view(def, attrs, specs, out_specs);
  std::vector<HostTensor> arrays;
  for (size_t i = 0; i < inputs.size(); ++i) {
    require(inputs[i].shape() == specs[i].shape, "{}: the array of operand {} must be {}, got {}",
            def.name, i, to_string(specs[i]), to_string(inputs[i].spec()));
    arrays.push_back(inputs[i].cast(working_dtype(specs[i].dtype, precision)));
  }
  for (const TensorSpec& spec : out_specs) {
    arrays.emplace_back(TensorSpec{spec.shape, working_dtype(spec.dtype, precision), {}});
  }
  std::vector<HostTensor*> operands;
  for (HostTensor& t : arrays) operands.push_back(&t);
  const auto results = operands.begin() + std::ssize(inputs);
  for (const Alias& a : def.aliases) results[a.output] = at(operands, a.input);
  run_kernel(view, operands, precision);
  std::vector<HostTensor> outputs;
  for (size_t i = 0; i < out_specs.size(); ++i) {
    const HostTensor result = operands[inputs.size() + i]->reshaped(out_specs[i].shape);
    outputs.push_back(precision == Precision::kFloat ? result.cast(out_specs[i].dtype) : result);
  }
  return outputs;
}

std::vector<HostTensor> run_op(const OpDef& def, const Attrs& attrs,
                               const std::vector<HostTensor>& inputs, Precision precision) {
  std::vector<TensorSpec> specs;
  for (const HostTensor& t : inputs) specs.push_back(t.spec());
  return run_op(def, attrs, specs, inputs, precision);
}

}  // namespace sluice
