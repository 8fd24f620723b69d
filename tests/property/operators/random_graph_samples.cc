#include <algorithm>
#include <cmath>
#include <optional>

#include "../random_graph.h"
#include "random_operators.h"
#include "sluice/base/error.h"
#include "sluice/ops/ops.h"

namespace sluice::property {
namespace {

using Domain = std::pair<double, double>;

bool is_refused_by_autodiff(const OpDef& def) {
  return def.grad == nullptr && def.formula == nullptr && !def.has(kZeroGradient);
}

bool writes(const OpDef& def) {
  for (size_t i = 0; i < def.inputs.size(); ++i) {
    if (def.inputs[i].mode != Mode::kRead) return true;
  }
  return false;
}

/// Draws an operator that the scope allows.
const OpDef& any_operator(Draw& d, bool elementwise) {
  const std::vector<const OpDef*>& all = ops::all_ops();
  const bool may_write = !d.s.pure && (!d.s.differentiable || d.dice.one_in(8));
  for (;;) {
    const OpDef& def = *all[static_cast<size_t>(d.dice(static_cast<int>(all.size())))];
    if (undrawn_operators().contains(def.name) || def.samples.empty()) continue;
    if (elementwise && !def.has(kElementwise)) continue;
    if (d.s.differentiable && is_refused_by_autodiff(def)) continue;
    if (writes(def) && !may_write) continue;
    return def;
  }
}

const Attrs& options_of(const OpDef& def, const Sample& sample) {
  return sample.options.items.empty() ? def.options : sample.options;
}

bool accepts(const OpDef& def, const Attrs& options, const std::vector<TensorSpec>& inputs) {
  try {
    def.infer(OpView(def, options, inputs));
    return true;
  } catch (const Error&) {
    return false;
  }
}

/// Appends the op and adds its results. A given value replaces a random operand of its spec.
bool append(Draw& d, const OpDef& def, const Attrs& options, const std::vector<TensorSpec>& specs,
            const Sample& sample) {
  std::vector<TensorArg> inputs;
  for (size_t i = 0; i < specs.size(); ++i) {
    const auto& given = i < sample.values.size() ? sample.values[i] : std::nullopt;
    const bool written = def.input_mode(static_cast<int>(i)) != Mode::kRead;
    // A later op may write through a view.
    if (written || def.type.ends_with("Inplace")) {
      inputs.emplace_back(d.target(specs[i], sample.domain));
    } else if (given && given->shape() == specs[i].shape) {
      inputs.emplace_back(d.s.graph.constant(given->cast(specs[i].dtype)));
    } else {
      inputs.emplace_back(d.operand(specs[i], sample.domain));
    }
  }
  const Tensors results = ops::emit(def, inputs, options);
  for (const Tensor& t : results) {
    if (!def.aliases.empty()) {
      d.s.keep(t);
    } else if (def.type.ends_with("Inplace")) {
      d.use_view(t);
    } else {
      d.keep(t);
    }
  }
  return writes(def);
}

const Sample& any_sample(Draw& d, const OpDef& def) {
  return def.samples[static_cast<size_t>(d.dice(static_cast<int>(def.samples.size())))];
}

bool has_device_dtypes(const Sample& sample) {
  return std::all_of(sample.inputs.begin(), sample.inputs.end(),
                     [](const TensorSpec& spec) { return spec.dtype != f64 && spec.dtype != i64; });
}

}  // namespace

const std::map<std::string, std::string>& undrawn_operators() {
  static const char* const kCollective = "a conditional must not run it; tests/replicas runs it";
  static const std::map<std::string, std::string> all{
      {"print_tensor", "it writes text to standard error"},
      {"replicated_all_gather", kCollective},
      {"replicated_all_reduce", kCollective},
      {"replicated_all_reduce_", kCollective},
      {"replicated_all_reduce_identical_grad_inputs", kCollective},
      {"replicated_all_reduce_identical_inputs", kCollective},
      {"replicated_reduce_scatter", kCollective},
      {"replicated_slice", kCollective},
  };
  return all;
}

DType Draw::float_dtype() {
  constexpr DType kAll[] = {f32, f32, f16, bf16};
  return kAll[dice(4)];
}

DType Draw::integer_dtype() {
  constexpr DType kAll[] = {i32, i32, u32, u8};
  return kAll[dice(4)];
}

Tensor Draw::number(int64_t max_elements) {
  const DType dtype = float_dtype();
  const auto found = s.find(
      dice, [&](const Tensor& t) { return t.dtype() == dtype && t.elements() <= max_elements; });
  if (found && !dice.one_in(3)) return ops::clip(*found, {.min = -4, .max = 4});
  const auto small = s.find(
      dice, [&](const Tensor& t) { return t.dtype() == f32 && t.elements() <= max_elements; });
  const Tensor t = small ? *small : s.with_shape(dice, random_shape(dice, 5));
  return ops::cast(ops::clip(t, {.min = -4, .max = 4}), dtype);
}

Tensor Draw::vector(int64_t max_elements) {
  const Tensor t = number(max_elements);
  if (t.rank() > 0) return t;
  return operand({{1 + dice(s.largest)}, t.dtype(), {}});
}

HostTensor Draw::array(const TensorSpec& spec, Domain domain) {
  HostTensor values(TensorSpec{spec.shape, f64, {}});
  for (double& v : values.as<double>()) {
    v = dice.real(domain.first, domain.second);
    if (is_integer(spec.dtype)) v = std::floor(v);
    if (spec.dtype == boolean) v = dice(2);
  }
  return values.cast(spec.dtype);
}

Tensor Draw::number_operand(const TensorSpec& spec, Domain domain) {
  const auto [low, high] = domain;
  Tensor t = s.with_shape(dice, spec.shape);
  const auto found = s.find(
      dice, [&](const Tensor& v) { return v.shape() == spec.shape && v.dtype() == spec.dtype; });
  if (found && !dice.one_in(3)) t = *found;
  switch (dice(4)) {
    case 0:
      t = ops::sigmoid(t) * (high - low) + low;
      break;
    case 1:
      t = ops::clip(ops::where(ops::isfinite(t), t, high), {.min = low, .max = high});
      break;
    default:
      t = ops::clip(t, {.min = low, .max = high});
  }
  return t.dtype() == spec.dtype ? t : ops::cast(t, spec.dtype);
}

Tensor Draw::integer_operand(const TensorSpec& spec, Domain domain) {
  const double low = std::max(spec.dtype == i32 ? -1e6 : 0.0, std::ceil(domain.first));
  const double high = std::max(low, std::min(spec.dtype == u8 ? 255.0 : 1e6, domain.second));
  if (dice.one_in(2)) {
    const Tensor t = s.with_spec(dice, spec);
    if (dice.one_in(3)) return t;
    const Tensor within = ops::remainder(t, std::min(std::floor(high) - low + 1, 255.0));
    return low == 0 ? within : within + low;
  }
  return ops::cast(number_operand({spec.shape, f32, {}}, {low, high}), spec.dtype);
}

Tensor Draw::operand(const TensorSpec& spec, Domain domain) {
  if (dice.one_in(6)) return s.graph.constant(array(spec, domain));
  if (is_float(spec.dtype)) return number_operand(spec, domain);
  if (is_integer(spec.dtype)) return integer_operand(spec, domain);
  if (dice.one_in(2)) return s.with_spec(dice, spec);
  const Tensor t = s.with_shape(dice, spec.shape);
  return ops::greater(t, dice.real(-0.5, 0.5));
}

Tensor Draw::target(const TensorSpec& spec, Domain domain) {
  const auto found = s.find(dice, [&](const Tensor& t) {
    return t.shape() == spec.shape && t.dtype() == spec.dtype && !s.is_constant(t);
  });
  if (found && dice.one_in(2)) return *found;
  const Tensor t = operand(spec, domain);
  return s.is_constant(t) ? ops::identity(t) : t;
}

Tensor Draw::indices(const Shape& shape, int64_t size) {
  const DType dtype = dice.one_in(4) ? u32 : i32;
  return operand({shape, dtype, {}}, {dtype == i32 && dice.one_in(4) ? -1.0 : 0.0,
                                      static_cast<double>(dice.one_in(4) ? size : size - 1)});
}

int64_t Draw::axis(const Tensor& t) {
  const int rank = std::max(1, t.rank());
  const int front = dice(rank);
  return dice.one_in(2) ? front : front - rank;
}

std::vector<int64_t> Draw::axes(const Tensor& t) {
  std::vector<int64_t> some;
  for (int a = 0; a < t.rank(); ++a) {
    if (dice.one_in(2)) some.push_back(dice.one_in(2) ? a : a - t.rank());
  }
  return some;
}

void Draw::keep(Tensor t) {
  if (t.elements() > s.max_elements()) return;
  const DType dtype = t.dtype();
  if (!is_float(dtype)) {
    s.keep(t);
    if (dice.one_in(2)) s.keep(ops::cast(t, f32) * 0.125);
    return;
  }
  if (dtype != f32) {
    if (dice.one_in(2)) s.keep(t);
    t = ops::cast(t, f32);
  }
  s.keep(dice.one_in(2) ? ops::clip(t, {.min = -4, .max = 4}) : t);
}

void Draw::use_view(const Tensor& view) {
  if (view.elements() == 0) return;
  if (is_float(view.dtype())) {
    if (!dice.one_in(3)) ops::add_(view, operand(view.spec()));
    keep(ops::tanh(view));
  } else if (is_integer(view.dtype())) {
    if (!dice.one_in(3)) ops::increment_mod_(view, 1, 5);
    keep(ops::bitwise_not(view));
  } else {
    keep(ops::logical_not(view));
  }
}

bool add_sample(Draw& d) {
  const OpDef& def = any_operator(d, false);
  const Sample& sample = any_sample(d, def);
  if (!has_device_dtypes(sample)) return false;
  std::vector<TensorSpec> specs = sample.inputs;
  const DType dtype = d.float_dtype();
  for (TensorSpec& spec : specs) {
    if (spec.dtype == f32) spec.dtype = dtype;
  }
  const Attrs& options = options_of(def, sample);
  if (!accepts(def, options, specs)) specs = sample.inputs;
  return append(d, def, options, specs, sample);
}

bool add_elementwise(Draw& d) {
  const OpDef& def = any_operator(d, true);
  const Sample& sample = any_sample(d, def);
  const Attrs& options = options_of(def, sample);
  const Shape full = d.number(d.s.max_elements() / 2).shape();
  const DType dtype = d.dice.one_in(3) ? d.integer_dtype() : d.float_dtype();
  const size_t named = def.inputs.size() - (def.variadic ? 1 : 0);
  const bool has_hypers = def.variadic && def.inputs.back().name == "hypers";
  const auto shape = [&](bool broadcasts) -> Shape {
    switch (broadcasts ? d.dice(8) : 7) {
      case 0:
        return {};
      case 1:
        return full.rank() > 0 ? Shape{full.dim(-1)} : full;
      case 2:
        return full.rank() > 1 ? Shape{full.dim(-2), 1} : full;
      default:
        return full;
    }
  };
  const auto specs = [&](bool broadcasts, bool own_dtype) {
    std::vector<TensorSpec> all = sample.inputs;
    for (size_t i = 0; i < all.size(); ++i) {
      if (!own_dtype && all[i].dtype != boolean) all[i].dtype = dtype;
      if (i < named || !has_hypers) all[i].shape = shape(broadcasts);
    }
    return all;
  };
  Sample plain = sample;
  plain.values.clear();
  for (const bool own_dtype : {false, true}) {
    for (const bool broadcasts : {true, false}) {
      const std::vector<TensorSpec> inputs = specs(broadcasts, own_dtype);
      if (!accepts(def, options, inputs)) continue;
      if (is_integer(inputs[0].dtype)) plain.domain = {-9, 9};
      return append(d, def, options, inputs, plain);
    }
  }
  return false;
}

}  // namespace sluice::property
