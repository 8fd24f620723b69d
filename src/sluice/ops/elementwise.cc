#include "sluice/ops/elementwise.h"

#include <algorithm>

#include "sluice/base/rng.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/basic.h"

namespace sluice::ops::elementwise {
namespace {

std::string operand(const OpView& op, int i, const char* constraint) {
  const auto& inputs = op.def().inputs;
  const auto& input = at(inputs, std::min<int64_t>(i, std::ssize(inputs) - 1));
  return fmt::format("{} {}: {}", op.def().name, constraint, input.name);
}

/// Checks (C4) if the op is in place; returns `result`.
std::vector<TensorSpec> checked_alias(const OpView& op, TensorSpec result) {
  if (!op.def().aliases.empty()) {
    require(result.shape == op.input(0).shape,
            "{} (C4): the result must have the shape of the overwritten {}, {}, got {}",
            op.def().name, op.def().inputs[0].name, to_string(op.input(0).shape),
            to_string(result.shape));
  }
  return {std::move(result)};
}

}  // namespace

void require_one_dtype(const OpView& op) {
  for (int i = 1; i < op.inputs(); ++i) {
    require(op.input(i).dtype == op.input(0).dtype,
            "{} must have the dtype of {}, {}, got {}; cast one", operand(op, i, "(C2)"),
            op.def().inputs[0].name, name_of(op.input(0).dtype), to_string(op.input(i)));
  }
}

TensorSpec broadcast_operands(const OpView& op, int count) {
  const int n = count < 0 ? op.inputs() : count;
  TensorSpec result{op.input(0).shape, op.input(0).dtype, {}};
  for (int i = 1; i < n; ++i) {
    result.shape = broadcast(result.shape, op.input(i).shape, op.def().name + " (C3)");
  }
  for (int i = n; i-- > 0;) {
    if (op.input(i).shape == result.shape && !op.input(i).meta_shape.empty()) {
      result.meta_shape = op.input(i).meta_shape;
    }
  }
  return result;
}

std::vector<TensorSpec> infer_numeric(const OpView& op) {
  for (int i = 0; i < op.inputs(); ++i) require_device_dtype(op.input(i), operand(op, i, "(C1)"));
  require_one_dtype(op);
  return checked_alias(op, broadcast_operands(op));
}

std::vector<TensorSpec> infer_arithmetic(const OpView& op) {
  for (int i = 0; i < op.inputs(); ++i) {
    require_device_dtype(op.input(i), operand(op, i, "(C1)"));
    require(op.input(i).dtype != boolean, "{} must be a number, got {}", operand(op, i, "(C1)"),
            to_string(op.input(i)));
  }
  require_one_dtype(op);
  return checked_alias(op, broadcast_operands(op));
}

std::vector<TensorSpec> infer_float(const OpView& op) {
  for (int i = 0; i < op.inputs(); ++i) require_float(op.input(i), operand(op, i, "(C1)"));
  require_one_dtype(op);
  return checked_alias(op, broadcast_operands(op));
}

Tensors times_gradient(const OpView& op, const Tensors& inputs) {
  std::vector<TensorArg> operands;
  for (size_t i = 0; i + 1 < inputs.size(); ++i) operands.emplace_back(detach(inputs[i]));
  operands.emplace_back(scalar_like(inputs.back(), 1));
  return {mul(emit(op.def(), operands, op.attrs())[0], inputs.back())};
}

OpDef in_place(const OpDef& base, const char* type, const char* name) {
  OpDef d = base;
  d.type = type;
  d.name = name;
  d.doc = fmt::format("{}, written over {}.{} {}", base.name, base.inputs[0].name,
                      base.inputs.size() > 1 ? " (C4) The result has its shape." : "", base.doc);
  d.inputs[0].mode = Mode::kUpdate;
  d.aliases = {{0, 0}};
  std::erase_if(d.samples, [](const Sample& s) {
    for (const TensorSpec& x : s.inputs) {
      if (x.shape.rank() > s.inputs[0].shape.rank()) return true;
      if (broadcast(s.inputs[0].shape, x.shape, "sample") != s.inputs[0].shape) return true;
    }
    return false;
  });
  if (base.inputs.size() > 1)
    d.must_fail.push_back({"(C4)", {f32_spec({3}), f32_spec({2, 3})}, base.options});
  return d;
}

std::string_view functor_type(std::string_view type) {
  for (const std::string_view suffix : {"LhsInplace", "Inplace"}) {
    if (type.ends_with(suffix)) return type.substr(0, type.size() - suffix.size());
  }
  return type;
}

std::vector<Sample> unary_samples(std::pair<double, double> domain) {
  std::vector<Sample> samples;
  for (const Shape& shape :
       {Shape{}, Shape{1}, Shape{17}, Shape{3, 5}, Shape{2, 1, 33}, Shape{0, 4}}) {
    samples.push_back({.inputs = {f32_spec(shape)}, .domain = domain});
  }
  for (const DType dtype : {f16, bf16})
    samples.push_back({.inputs = {{Shape{19}, dtype, {}}}, .domain = domain});
  return samples;
}

std::vector<Sample> pair_samples(std::pair<double, double> domain) {
  std::vector<Sample> samples = unary_samples(domain);
  for (Sample& s : samples) s.inputs.push_back(s.inputs[0]);
  return samples;
}

std::vector<Sample> binary_samples(std::pair<double, double> domain) {
  std::vector<Sample> samples = pair_samples(domain);
  const std::vector<std::pair<Shape, Shape>> shapes{
      {{3, 5}, {5}}, {{5}, {3, 5}}, {{4, 1}, {1, 7}}, {{2, 3, 5}, {3, 1}},
      {{}, {9}},     {{9}, {}},     {{0, 3}, {3}}};
  for (const auto& [a, b] : shapes)
    samples.push_back({.inputs = {f32_spec(a), f32_spec(b)}, .domain = domain});
  return samples;
}

Sample integer_sample(DType dtype, const std::vector<Shape>& shapes) {
  Sample sample;
  sample.gradient = false;
  uint64_t index = 0;
  for (const Shape& shape : shapes) {
    HostTensor value(TensorSpec{shape, dtype, {}});
    visit_storage(dtype, [&]<typename E>(E) {
      if constexpr (std::is_integral_v<E>) {
        for (E& v : value.as<E>()) {
          const int64_t small = static_cast<int64_t>(random_bits({7, 7}, index++) % 19) -
                                (std::is_signed_v<E> ? 9 : 0);
          v = static_cast<E>(small);
        }
      }
    });
    sample.inputs.push_back(value.spec());
    sample.values.emplace_back(std::move(value));
  }
  return sample;
}

}  // namespace sluice::ops::elementwise
