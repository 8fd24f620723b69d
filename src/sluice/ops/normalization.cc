#include "sluice/ops/normalization.h"

#include "sluice/ops/arithmetic.h"
#include "sluice/ops/gather.h"
#include "sluice/ops/norms.h"
#include "sluice/ops/reductions.h"
#include "sluice/ops/reshape.h"

namespace sluice::ops {
namespace {

/// Checks the operands that layer_norm and its gradient share; at most `max` parameters follow
/// input `first`.
void require_rows(const OpView& op, int first, int max) {
  const TensorSpec& x = op.input(0);
  const std::string& name = op.def().name;
  require_float(x, fmt::format("{} (C1): {}", name, op.def().inputs[0].name));
  require(x.shape.rank() > 0, "{} (C2): {} must have an axis, got a scalar", name,
          op.def().inputs[0].name);
  require_parameters(op, first, max, x.shape.dim(-1), "(C3)");
  require_epsilon(op, op.options<LayerNormOptions>().epsilon, "(C4)");
}

std::vector<TensorSpec> infer_layer(const OpView& op) {
  require_rows(op, 1, 2);
  return {{op.input(0).shape, op.input(0).dtype, {}}};
}

std::vector<TensorSpec> infer_layer_grad(const OpView& op) {
  require_rows(op, 2, 1);
  require_like(op, 1, "layer_norm_grad (C5): x");
  const RowParts parts(op.input(0).shape);
  const TensorSpec sums{{parts.count, parts.cols}, op.input(0).dtype, {}};
  return {{op.input(0).shape, op.input(0).dtype, {}}, sums, sums};
}

template <typename T>
void reference_layer(const KernelArgs& k) {
  const int64_t n = k.in_shape(0).dim(-1);
  const double epsilon = k.options<LayerNormOptions>().epsilon;
  const T* const end = k.in<T>(0).data() + k.in_shape(0).elements();
  T* out = k.out<T>(0).data();
  const bool weighted = k.op().inputs() > 1;
  const bool biased = k.op().inputs() > 2;
  for (const T* x = k.in<T>(0).data(); x < end; x += n) {
    const Moments<T> m(x, n, epsilon);
    for (int64_t i = 0; i < n; ++i) {
      T y = (x[i] - m.mean) * m.inverse;
      if (weighted) y = y * k.in<T>(1).data()[i];
      if (biased) y = y + k.in<T>(2).data()[i];
      *out++ = y;
    }
  }
}

template <typename T>
void reference_layer_grad(const KernelArgs& k) {
  const RowParts parts(k.in_shape(0));
  const int64_t n = parts.cols;
  const double epsilon = k.options<LayerNormOptions>().epsilon;
  const bool weighted = k.op().inputs() > 2;
  const T count = static_cast<T>(n);
  std::fill_n(k.out<T>(1).begin(), parts.count * n, T{0});
  std::fill_n(k.out<T>(2).begin(), parts.count * n, T{0});
  for (int64_t row = 0; row < parts.rows; ++row) {
    const T* grad = k.in<T>(0).data() + row * n;
    const T* x = k.in<T>(1).data() + row * n;
    T* dx = k.out<T>(0).data() + row * n;
    T* dweight = k.out<T>(1).data() + row / parts.size * n;
    T* dbias = k.out<T>(2).data() + row / parts.size * n;
    const Moments<T> m(x, n, epsilon);
    const auto h = [&](int64_t i) { return weighted ? grad[i] * k.in<T>(2).data()[i] : grad[i]; };
    const auto normal = [&](int64_t i) { return (x[i] - m.mean) * m.inverse; };
    const T mean = canonical_sum<T>(n, h) / count;
    const T slope = canonical_sum<T>(n, [&](int64_t i) { return h(i) * normal(i); }) / count;
    for (int64_t i = 0; i < n; ++i) {
      dweight[i] += grad[i] * normal(i);
      dbias[i] += grad[i];
      dx[i] = ((h(i) - mean) - normal(i) * slope) * m.inverse;
    }
  }
}

/// The deviations of the rows of x from their means, over the deviation; and its inverse.
struct Normalized {
  Normalized(const Tensor& x, double epsilon) {
    const ReduceOptions rows{.axes = {-1}, .keepdims = true};
    const Tensor centred = x - mean(x, rows);
    inverse = 1.0 / sqrt(mean(centred * centred, rows) + epsilon);
    values = centred * inverse;
  }
  /// Returns the gradient of x from that of the values.
  Tensor gradient(const Tensor& h) const {
    const ReduceOptions rows{.axes = {-1}, .keepdims = true};
    return (h - mean(h, rows) - values * mean(h * values, rows)) * inverse;
  }
  Tensor inverse;
  Tensor values;
};

/// The formula of layer_norm_grad, as a graph of other ops.
Tensors layer_grad_formula(const OpView& op, const Tensors& in) {
  const RowParts parts(op.input(0).shape);
  const Normalized n(in[1], op.options<LayerNormOptions>().epsilon);
  std::vector<int32_t> part_of;
  for (int64_t row = 0; row < parts.rows; ++row)
    part_of.push_back(static_cast<int32_t>(row / parts.size));
  const Tensor indices =
      in[0].graph().constant(HostTensor::of<int32_t>({parts.rows}, i32, part_of));
  const auto sums = [&](const Tensor& t) {
    return gather_grad(reshape(t, {parts.rows, parts.cols}), indices,
                       {.axis = 0, .size = parts.count});
  };
  return {n.gradient(in.size() > 2 ? in[0] * in[2] : in[0]), sums(in[0] * n.values), sums(in[0])};
}

/// The gradients of x and of the parameters. The sums of `all` over axis 0 are those of the
/// parameters.
Tensors with_parameters(GradContext& g, const Tensors& all) {
  Tensors result{all[0]};
  for (int i = 1; i < g.op().inputs(); ++i) {
    result.push_back(g.needs(i) ? sum(at(all, i), {.axes = {0}}) : Tensor{});
  }
  return result;
}

Tensors gradient_layer(GradContext& g) {
  std::vector<TensorArg> operands{g.grad(0), g.input(0)};
  if (g.op().inputs() > 1) operands.emplace_back(g.input(1));
  return with_parameters(
      g, emit(layer_norm_grad_def(), operands, to_attrs(g.options<LayerNormOptions>())));
}

/// Sizes of a group norm. The groups of all samples are rows of `extent` contiguous elements.
struct Groups {
  Groups(const Shape& shape, int64_t groups) : planes(shape), per_sample(groups) {
    channels = planes.channels / groups;
    extent = channels * planes.size;
    rows = planes.batch * groups;
  }
  Planes planes;
  int64_t per_sample = 1;
  int64_t channels = 0;  ///< Channels of a group.
  int64_t extent = 0;
  int64_t rows = 0;
};

/// Checks the operands that group_norm and its gradient share; at most `max` parameters follow
/// input `first`.
void require_groups(const OpView& op, int first, int max) {
  const TensorSpec& x = op.input(0);
  const std::string& name = op.def().name;
  const std::string& what = op.def().inputs[0].name;
  require_float(x, fmt::format("{} (C1): {}", name, what));
  require(x.shape.rank() >= 2,
          "{} (C2): {} must have axes (batch, channels, spatial…), got shape {}", name, what,
          to_string(x.shape));
  const auto o = op.options<GroupNormOptions>();
  require(o.groups > 0 && x.shape[1] % o.groups == 0,
          "{} (C3): groups must be positive and divide the {} channels, got {}", name, x.shape[1],
          o.groups);
  require_parameters(op, first, max, x.shape[1], "(C4)");
  require_epsilon(op, o.epsilon, "(C5)");
}

std::vector<TensorSpec> infer_group(const OpView& op) {
  require_groups(op, 1, 2);
  const Groups g(op.input(0).shape, op.options<GroupNormOptions>().groups);
  require(g.planes.batch * g.extent != 1,
          "group_norm (C6): x must have more than one value per group, got shape {} in {} groups; "
          "use fewer groups or larger samples",
          to_string(op.input(0).shape), g.per_sample);
  return {{op.input(0).shape, op.input(0).dtype, {}}};
}

std::vector<TensorSpec> infer_group_grad(const OpView& op) {
  require_groups(op, 2, 1);
  require_like(op, 1, "group_norm_grad (C6): x");
  const Shape& shape = op.input(0).shape;
  const TensorSpec sums{{shape[0], shape[1]}, op.input(0).dtype, {}};
  return {{shape, op.input(0).dtype, {}}, sums, sums};
}

template <typename T>
void reference_group(const KernelArgs& k) {
  const auto o = k.options<GroupNormOptions>();
  const Groups g(k.in_shape(0), o.groups);
  const T* x = k.in<T>(0).data();
  T* y = k.out<T>(0).data();
  for (int64_t row = 0; row < g.rows; ++row) {
    const Moments<T> m(x + row * g.extent, g.extent, o.epsilon);
    for (int64_t j = 0; j < g.channels; ++j) {
      const int64_t c = row % g.per_sample * g.channels + j;
      const T scale = m.inverse * parameter<T>(k, 1, c, 1);
      const T shift = parameter<T>(k, 2, c, 0);
      const int64_t at = row * g.extent + j * g.planes.size;
      for (int64_t i = at; i < at + g.planes.size; ++i) y[i] = (x[i] - m.mean) * scale + shift;
    }
  }
}

template <typename T>
void reference_group_grad(const KernelArgs& k) {
  const auto o = k.options<GroupNormOptions>();
  const Groups g(k.in_shape(0), o.groups);
  const int64_t size = g.planes.size;
  const T count = static_cast<T>(divisor_of_mean(g.extent));
  for (int64_t row = 0; row < g.rows; ++row) {
    const T* grad = k.in<T>(0).data() + row * g.extent;
    const T* x = k.in<T>(1).data() + row * g.extent;
    const Moments<T> m(x, g.extent, o.epsilon);
    const auto weight = [&](int64_t j) {
      return parameter<T>(k, 2, row % g.per_sample * g.channels + j, 1);
    };
    T* const products = k.out<T>(1).data() + row * g.channels;
    T* const grads = k.out<T>(2).data() + row * g.channels;
    for (int64_t j = 0; j < g.channels; ++j) {
      const PlaneSums<T> sums(grad + j * size, x + j * size, size, m.mean);
      products[j] = sums.products * m.inverse;
      grads[j] = sums.grads;
    }
    const T mean =
        canonical_sum<T>(g.channels, [&](int64_t j) { return weight(j) * grads[j]; }) / count;
    const T slope =
        canonical_sum<T>(g.channels, [&](int64_t j) { return weight(j) * products[j]; }) / count;
    PlaneGrad<T> result{
        .mean = m.mean, .slope = (m.inverse * m.inverse) * slope, .shift = m.inverse * mean};
    for (int64_t j = 0; j < g.channels; ++j) {
      result.scale = m.inverse * weight(j);
      result.run(grad + j * size, x + j * size, size,
                 k.out<T>(0).data() + row * g.extent + j * size);
    }
  }
}

/// The formula of group_norm_grad, as a graph of other ops.
Tensors group_grad_formula(const OpView& op, const Tensors& in) {
  const auto o = op.options<GroupNormOptions>();
  const Shape shape = op.input(0).shape;
  const Groups g(shape, o.groups);
  const Shape planes{g.planes.batch, g.planes.channels, g.planes.size};
  const Shape groups{g.planes.batch, g.per_sample, g.extent};
  const Tensor grad = reshape(in[0], planes);
  const Normalized n(reshape(in[1], groups), o.epsilon);
  const Tensor h = in.size() > 2 ? grad * reshape(in[2], {g.planes.channels, 1}) : grad;
  return {reshape(n.gradient(reshape(h, groups)), shape),
          sum(grad * reshape(n.values, planes), {.axes = {2}}), sum(grad, {.axes = {2}})};
}

Tensors gradient_group(GradContext& g) {
  std::vector<TensorArg> operands{g.grad(0), g.input(0)};
  if (g.op().inputs() > 1) operands.emplace_back(g.input(1));
  return with_parameters(
      g, emit(group_norm_grad_def(), operands, to_attrs(g.options<GroupNormOptions>())));
}

Attrs layer_norm_epsilon(double epsilon) { return to_attrs(LayerNormOptions{.epsilon = epsilon}); }
Attrs in_groups(int64_t groups, double epsilon = 1e-5) {
  return to_attrs(GroupNormOptions{.groups = groups, .epsilon = epsilon});
}

OpDef make_layer_norm() {
  OpDef d;
  d.type = "LayerNorm";
  d.name = "layer_norm";
  d.doc =
      "(x - mean) / √(variance + epsilon)·weight + bias with the mean and the biased variance of "
      "each row. (C1) x is floating point. (C2) x has an axis. (C3) weight and bias, if given, "
      "have one element for each column and x's dtype. (C4) epsilon is finite and not negative.";
  d.inputs = {{"x"}, {"parameters"}};
  d.variadic = true;
  d.outputs = {"y"};
  d.set_options(LayerNormOptions{});
  d.may_coincide = {{0, 0}};
  d.infer = infer_layer;
  d.grad = gradient_layer;
  d.reference_float = reference_layer<float>;
  d.reference_double = reference_layer<double>;
  d.flops_per_element = 8;
  const TensorSpec w = f32_spec({10});
  d.samples = {{.inputs = {f32_spec({3, 10}), w, w}},
               {.inputs = {f32_spec({2, 3, 10}), w}, .options = layer_norm_epsilon(0.25)},
               {.inputs = {f32_spec({37})}},
               {.inputs = {f32_spec({4, 1}), f32_spec({1}), f32_spec({1})}},
               {.inputs = {f32_spec({0, 10}), w, w}, .gradient = false}};
  d.must_fail = {{"(C1)", {i32_spec({4})}, {}},
                 {"(C2)", {f32_spec({})}, {}},
                 {"(C3)", {f32_spec({2, 10}), f32_spec({2})}, {}},
                 {"(C3)", {f32_spec({2, 10}), w, f32_spec({2, 10})}, {}},
                 {"(C3)", {f32_spec({2, 10}), w, w, w}, {}},
                 {"(C4)", {f32_spec({4})}, layer_norm_epsilon(-1)}};
  return d;
}

OpDef make_layer_norm_grad() {
  OpDef d;
  d.type = "LayerNormGrad";
  d.name = "layer_norm_grad";
  d.audience = Audience::kOperators;
  d.doc =
      "Gradient of layer_norm with respect to x. The sums of the other results over axis 0 are the "
      "gradients of weight and bias: the rows are cut into at most 16 equal parts, and each part "
      "has a sum. (C1) grad is floating point. (C2) grad has an "
      "axis. (C3) weight, if given, has one element for each column and grad's dtype. (C4) epsilon "
      "is finite and not negative. (C5) x is like grad.";
  d.inputs = {{"grad"}, {"x"}, {"weight"}};
  d.variadic = true;
  d.outputs = {"dx", "dweights", "dbiases"};
  d.set_options(LayerNormOptions{});
  d.may_coincide = {{0, 0}, {1, 0}};
  d.infer = infer_layer_grad;
  d.formula = layer_grad_formula;
  d.reference_float = reference_layer_grad<float>;
  d.reference_double = reference_layer_grad<double>;
  d.flops_per_element = 18;
  const TensorSpec x = f32_spec({3, 10});
  d.samples = {{.inputs = {x, x, f32_spec({10})}},
               {.inputs = {f32_spec({2, 3, 5}), f32_spec({2, 3, 5})}},
               {.inputs = {f32_spec({37}), f32_spec({37}), f32_spec({37})}},
               {.inputs = {f32_spec({35, 4}), f32_spec({35, 4}), f32_spec({4})}}};
  d.must_fail = {{"(C1)", {i32_spec({4}), i32_spec({4})}, {}},
                 {"(C2)", {f32_spec({}), f32_spec({})}, {}},
                 {"(C3)", {x, x, f32_spec({3})}, {}},
                 {"(C4)", {x, x}, layer_norm_epsilon(-1)},
                 {"(C5)", {x, f32_spec({10, 3})}, {}}};
  return d;
}

OpDef make_group_norm() {
  OpDef d;
  d.type = "GroupNorm";
  d.name = "group_norm";
  d.doc =
      "(x - mean) / √(variance + epsilon)·weight + bias with the mean and the biased variance of "
      "each group of channels of a sample; x is (batch, channels, spatial…). (C1) x is floating "
      "point. (C2) x has two or more axes. (C3) groups divides the channels. (C4) weight and bias, "
      "if given, have one element for each channel and x's dtype. (C5) epsilon is finite and not "
      "negative. (C6) The groups of all samples have more than one value, or none.";
  d.inputs = {{"x"}, {"parameters"}};
  d.variadic = true;
  d.outputs = {"y"};
  d.set_options(GroupNormOptions{});
  d.infer = infer_group;
  d.grad = gradient_group;
  d.reference_float = reference_group<float>;
  d.reference_double = reference_group<double>;
  d.flops_per_element = 6;
  const TensorSpec w = f32_spec({6});
  d.samples = {{.inputs = {f32_spec({2, 6, 3, 2}), w, w}, .options = in_groups(3)},
               {.inputs = {f32_spec({2, 6, 5}), w}, .options = in_groups(1, 0.25)},
               {.inputs = {f32_spec({3, 6, 2, 2})}, .options = in_groups(6)},
               {.inputs = {f32_spec({3, 6}), w, w}, .options = in_groups(2)},
               {.inputs = {f32_spec({0, 6, 2}), w, w}, .options = in_groups(2), .gradient = false}};
  d.must_fail = {{"(C1)", {i32_spec({2, 6})}, in_groups(2)},
                 {"(C2)", {f32_spec({6})}, in_groups(2)},
                 {"(C3)", {f32_spec({2, 6})}, in_groups(4)},
                 {"(C3)", {f32_spec({2, 6})}, in_groups(0)},
                 {"(C4)", {f32_spec({2, 6}), f32_spec({2})}, in_groups(2)},
                 {"(C4)", {f32_spec({2, 6}), w, w, w}, in_groups(2)},
                 {"(C5)", {f32_spec({2, 6})}, in_groups(2, -1)},
                 {"(C6)", {f32_spec({1, 6, 1})}, in_groups(6)}};
  return d;
}

OpDef make_group_norm_grad() {
  OpDef d;
  d.type = "GroupNormGrad";
  d.name = "group_norm_grad";
  d.audience = Audience::kOperators;
  d.doc =
      "Gradient of group_norm with respect to x. The sums of the other results over the batch are "
      "the gradients of weight and bias. (C1) grad is floating point. (C2) grad has two or more "
      "axes. (C3) groups divides the channels. (C4) weight, if given, has one element for each "
      "channel and grad's dtype. (C5) epsilon is finite and not negative. (C6) x is like grad.";
  d.inputs = {{"grad"}, {"x"}, {"weight"}};
  d.variadic = true;
  d.outputs = {"dx", "dweights", "dbiases"};
  d.set_options(GroupNormOptions{});
  d.infer = infer_group_grad;
  d.formula = group_grad_formula;
  d.reference_float = reference_group_grad<float>;
  d.reference_double = reference_group_grad<double>;
  d.flops_per_element = 15;
  const TensorSpec w = f32_spec({6});
  const auto twice = [](Shape shape) {
    return std::vector<TensorSpec>{f32_spec(shape), f32_spec(shape)};
  };
  const TensorSpec x = f32_spec({2, 6, 3, 2});
  d.samples = {{.inputs = {x, x, w}, .options = in_groups(3)},
               {.inputs = twice({2, 6, 5}), .options = in_groups(1, 0.25)},
               {.inputs = twice({3, 6}), .options = in_groups(2)}};
  d.must_fail = {{"(C1)", {i32_spec({2, 6}), i32_spec({2, 6})}, in_groups(2)},
                 {"(C2)", twice({6}), in_groups(2)},
                 {"(C3)", twice({2, 6}), in_groups(4)},
                 {"(C4)", {x, x, f32_spec({2})}, in_groups(2)},
                 {"(C5)", {x, x}, in_groups(2, -1)},
                 {"(C6)", {x, f32_spec({2, 6, 3})}, in_groups(2)}};
  return d;
}

}  // namespace

const OpDef& layer_norm_def() {
  static const OpDef def = make_layer_norm();
  return def;
}
const OpDef& layer_norm_grad_def() {
  static const OpDef def = make_layer_norm_grad();
  return def;
}
const OpDef& group_norm_def() {
  static const OpDef def = make_group_norm();
  return def;
}
const OpDef& group_norm_grad_def() {
  static const OpDef def = make_group_norm_grad();
  return def;
}

Tensor layer_norm(TensorArg x, const std::vector<TensorArg>& parameters,
                  const LayerNormOptions& options) {
  std::vector<TensorArg> inputs{x};
  inputs.insert(inputs.end(), parameters.begin(), parameters.end());
  return emit_one(layer_norm_def(), inputs, options);
}
Tensor layer_norm(TensorArg x, TensorArg weight, TensorArg bias, const LayerNormOptions& options) {
  return layer_norm(x, {weight, bias}, options);
}

Tensor group_norm(TensorArg x, const std::vector<TensorArg>& parameters,
                  const GroupNormOptions& options) {
  std::vector<TensorArg> inputs{x};
  inputs.insert(inputs.end(), parameters.begin(), parameters.end());
  return emit_one(group_norm_def(), inputs, options);
}
Tensor group_norm(TensorArg x, TensorArg weight, TensorArg bias, const GroupNormOptions& options) {
  return group_norm(x, {weight, bias}, options);
}

std::vector<const OpDef*> normalization_ops() {
  return {&layer_norm_def(), &layer_norm_grad_def(), &group_norm_def(), &group_norm_grad_def()};
}

}  // namespace sluice::ops
