#include "sluice/ops/normalization.h"

#include "sluice/ops/arithmetic.h"
#include "sluice/ops/norms.h"
#include "sluice/ops/reductions.h"
#include "sluice/ops/reshape.h"

namespace sluice::ops {
namespace {

void require_planes(const OpView& op, int input, std::string_view what) {
  require_float(op.input(input), fmt::format("{} (C1): {}", op.def().name, what));
  require(op.input(input).shape.rank() >= 2,
          "{} (C2): {} must have axes (batch, channels, spatial…), got shape {}", op.def().name,
          what, to_string(op.input(input).shape));
}

/// The spec of one value for each channel.
TensorSpec channel_spec(const OpView& op) {
  return {{op.input(0).shape[1]}, op.input(0).dtype, {}};
}

std::vector<TensorSpec> infer_batch_norm(const OpView& op) {
  require_planes(op, 0, "x");
  const Planes planes(op.input(0).shape);
  require_parameters(op, 1, 2, planes.channels, "(C3)");
  require_epsilon(op, op.options<BatchNormOptions>().epsilon, "(C4)");
  require(planes.values() != 1,
          "batch_norm (C5): x must have more than one value per channel in training, got shape {}; "
          "use a larger batch or batch_norm_inference",
          to_string(op.input(0).shape));
  return {{op.input(0).shape, op.input(0).dtype, {}}, channel_spec(op), channel_spec(op)};
}

std::vector<TensorSpec> infer_inference(const OpView& op) {
  require_planes(op, 0, "x");
  const int64_t channels = op.input(0).shape[1];
  require_vector(op, 1, channels, "batch_norm_inference (C3): mean");
  require_vector(op, 2, channels, "batch_norm_inference (C3): variance");
  require_parameters(op, 3, 2, channels, "(C3)");
  require_epsilon(op, op.options<BatchNormOptions>().epsilon, "(C4)");
  return {{op.input(0).shape, op.input(0).dtype, {}}};
}

std::vector<TensorSpec> infer_batch_norm_grad(const OpView& op) {
  require_planes(op, 0, "grad");
  require(op.input(1).shape == op.input(0).shape && op.input(1).dtype == op.input(0).dtype,
          "batch_norm_grad (C3): x must be {} like grad, got {}", to_string(op.input(0)),
          to_string(op.input(1)));
  const int64_t channels = op.input(0).shape[1];
  require_vector(op, 2, channels, "batch_norm_grad (C4): mean");
  require_vector(op, 3, channels, "batch_norm_grad (C4): variance");
  require_parameters(op, 4, 1, channels, "(C4)");
  require_epsilon(op, op.options<BatchNormGradOptions>().epsilon, "(C5)");
  return {{op.input(0).shape, op.input(0).dtype, {}}, channel_spec(op), channel_spec(op)};
}

template <typename T>
void normalize(const Planes& p, int64_t c, const T* x, T mean, T scale, T shift, T* y) {
  for (int64_t n = 0; n < p.batch; ++n) {
    const int64_t at = p.at(n, c);
    for (int64_t i = at; i < at + p.size; ++i) y[i] = (x[i] - mean) * scale + shift;
  }
}

template <typename T>
void reference_batch_norm(const KernelArgs& k) {
  const Planes p(k.in_shape(0));
  const double epsilon = k.options<BatchNormOptions>().epsilon;
  const T* x = k.in<T>(0).data();
  const T count = static_cast<T>(divisor_of_mean(p.values()));
  for (int64_t c = 0; c < p.channels; ++c) {
    const T mean = channel_sum<T>(p, c, [&](int64_t i) { return x[i]; }) / count;
    const T variance =
        channel_sum<T>(p, c, [&](int64_t i) { return (x[i] - mean) * (x[i] - mean); }) / count;
    const T scale = inverse_deviation(variance, epsilon) * parameter<T>(k, 1, c, 1);
    normalize(p, c, x, mean, scale, parameter<T>(k, 2, c, 0), k.out<T>(0).data());
    k.out<T>(1).data()[c] = mean;
    k.out<T>(2).data()[c] = variance;
  }
}

template <typename T>
void reference_inference(const KernelArgs& k) {
  const Planes p(k.in_shape(0));
  const double epsilon = k.options<BatchNormOptions>().epsilon;
  for (int64_t c = 0; c < p.channels; ++c) {
    const T variance = k.in<T>(2).data()[c];
    const T scale = inverse_deviation(variance, epsilon) * parameter<T>(k, 3, c, 1);
    normalize(p, c, k.in<T>(0).data(), k.in<T>(1).data()[c], scale, parameter<T>(k, 4, c, 0),
              k.out<T>(0).data());
  }
}

std::vector<TensorSpec> infer_scale(const OpView& op) {
  require_float(op.input(0), "batch_norm_scale (C1): variance");
  require(op.input(0).shape.rank() == 1,
          "batch_norm_scale (C2): variance must have one axis, got {}",
          to_string(op.input(0).shape));
  require_vector(op, 1, op.input(0).elements(), "batch_norm_scale (C3): weight");
  require_epsilon(op, op.options<BatchNormOptions>().epsilon, "(C4)");
  return {op.input(0)};
}

template <typename T>
void reference_scale(const KernelArgs& k) {
  const double epsilon = k.options<BatchNormOptions>().epsilon;
  for (size_t c = 0; c < k.in<T>(0).size(); ++c)
    k.out<T>(0)[c] = inverse_deviation(k.in<T>(0)[c], epsilon) * k.in<T>(1)[c];
}

/// Elementwise ops that a convolution before them computes as well, where it can.
std::vector<OpStage> parts_of_inference(const OpView& op) {
  if (op.inputs() < 5) return {};
  std::vector<int64_t> dims(op.input(0).shape.dims().size() - 1, 1);
  dims[0] = op.input(0).shape[1];
  const Attrs shape = to_attrs(ShapeOptions{Shape(std::move(dims))});
  return {{&batch_norm_scale_def(), op.attrs(), {2, 3}},
          {&reshape_def(), shape, {1}},
          {&reshape_def(), shape, {~0}},
          {&reshape_def(), shape, {4}},
          {&sub_def(), {}, {0, ~1}},
          {&mul_def(), {}, {~4, ~2}},
          {&add_def(), {}, {~5, ~3}, 0}};
}

template <typename T>
void reference_batch_norm_grad(const KernelArgs& k) {
  const Planes p(k.in_shape(0));
  const auto o = k.options<BatchNormGradOptions>();
  const T* grad = k.in<T>(0).data();
  const T* x = k.in<T>(1).data();
  const T count = static_cast<T>(divisor_of_mean(p.values()));
  for (int64_t c = 0; c < p.channels; ++c) {
    const T mean = k.in<T>(2).data()[c];
    const T inverse = inverse_deviation(k.in<T>(3).data()[c], o.epsilon);
    const T grads = channel_sum<T>(p, c, [&](int64_t i) { return grad[i]; });
    const T products = channel_sum<T>(p, c, [&](int64_t i) { return grad[i] * (x[i] - mean); });
    PlaneGrad<T> g{.mean = mean, .scale = inverse * parameter<T>(k, 4, c, 1)};
    if (o.training) {
      g.slope = g.scale * ((inverse * inverse) * (products / count));
      g.shift = g.scale * (grads / count);
    }
    for (int64_t n = 0; n < p.batch; ++n) {
      const int64_t at = p.at(n, c);
      g.run(grad + at, x + at, p.size, k.out<T>(0).data() + at);
    }
    k.out<T>(1).data()[c] = products * inverse;
    k.out<T>(2).data()[c] = grads;
  }
}

/// Views one value for each channel so that it broadcasts to `shape`.
Tensor along_channels(const Tensor& t, const Shape& shape) {
  std::vector<int64_t> dims(shape.dims().size(), 1);
  dims[1] = shape[1];
  return reshape(t, Shape(dims));
}

Tensors batch_norm_scale_formula(const OpView& op, const Tensors& in) {
  return {in[1] / sqrt(in[0] + op.options<BatchNormOptions>().epsilon)};
}

/// The formula of batch_norm_grad, as a graph of other ops.
Tensors batch_norm_grad_formula(const OpView& op, const Tensors& in) {
  const auto o = op.options<BatchNormGradOptions>();
  const Shape shape = op.input(0).shape;
  const auto count = static_cast<double>(divisor_of_mean(Planes(shape).values()));
  ReduceOptions channels{.axes = {0}};
  for (int a = 2; a < shape.rank(); ++a) channels.axes.push_back(a);
  const Tensor centred = in[1] - along_channels(in[2], shape);
  const Tensor inverse = 1.0 / sqrt(in[3] + o.epsilon);
  const Tensor grads = sum(in[0], channels);
  const Tensor products = sum(in[0] * centred, channels);
  const Tensor scale = in.size() > 4 ? inverse * in[4] : inverse;
  Tensor dx = in[0] * along_channels(scale, shape);
  if (o.training) {
    const Tensor slope = scale * inverse * inverse * products / count;
    dx = dx - centred * along_channels(slope, shape) - along_channels(scale * grads / count, shape);
  }
  return {dx, products * inverse, grads};
}

Tensors grad_of(GradContext& g, const BatchNormGradOptions& o, const Tensor& mean,
                const Tensor& variance, int weight) {
  std::vector<TensorArg> inputs{g.grad(0), g.input(0), mean, variance};
  if (weight < g.op().inputs()) inputs.emplace_back(g.input(weight));
  return emit(batch_norm_grad_def(), inputs, to_attrs(o));
}

/// The gradients of mean and variance are added only if something reads these results in the loss.
Tensors gradient(GradContext& g) {
  const Shape shape = g.op().input(0).shape;
  const double count = static_cast<double>(divisor_of_mean(Planes(shape).values()));
  const Tensor mean = g.output(1);
  Tensors all =
      grad_of(g, {.epsilon = g.options<BatchNormOptions>().epsilon}, mean, g.output(2), 1);
  if (g.has_grad(1)) all[0] = all[0] + along_channels(g.grad(1) / count, shape);
  if (g.has_grad(2)) {
    all[0] = all[0] + (g.input(0) - along_channels(mean, shape)) *
                          along_channels(g.grad(2) * (2 / count), shape);
  }
  all.resize(static_cast<size_t>(g.op().inputs()));
  return all;
}

Tensors gradient_inference(GradContext& g) {
  const double epsilon = g.options<BatchNormOptions>().epsilon;
  const Tensor variance = g.input(2);
  const Tensors all = grad_of(g, {.epsilon = epsilon, .training = false}, g.input(1), variance, 3);
  const bool weighted = g.op().inputs() > 3;
  Tensors result{all[0], {}, {}};
  const auto times_weight = [&](const Tensor& t) { return weighted ? t * g.input(3) : t; };
  if (g.needs(1)) result[1] = times_weight(-all[2]) / sqrt(variance + epsilon);
  if (g.needs(2)) result[2] = times_weight(all[1] * -0.5) / (variance + epsilon);
  if (weighted) result.push_back(all[1]);
  if (g.op().inputs() > 4) result.push_back(all[2]);
  return result;
}

Attrs with_epsilon(double epsilon) { return to_attrs(BatchNormOptions{.epsilon = epsilon}); }

/// Specs of `count` values for each of c channels.
std::vector<TensorSpec> operands(std::vector<TensorSpec> first, int64_t c, int count) {
  for (int i = 0; i < count; ++i) first.push_back(f32_spec({c}));
  return first;
}

OpDef forward() {
  OpDef d;
  d.type = "BatchNorm";
  d.name = "batch_norm";
  d.doc =
      "(x - mean) / √(variance + epsilon)·weight + bias with the mean and the biased variance of "
      "each channel of x (batch, channels, spatial…). mean and variance have gradients like other "
      "results. (C1) x is floating point. (C2) x has two or more axes. (C3) weight and bias, if "
      "given, have one element for each channel and x's dtype. (C4) epsilon is finite and not "
      "negative. (C5) A channel does not have exactly one value.";
  d.inputs = {{"x"}, {"parameters"}};
  d.variadic = true;
  d.outputs = {"y", "mean", "variance"};
  d.set_options(BatchNormOptions{});
  d.infer = infer_batch_norm;
  d.grad = gradient;
  d.reference_float = reference_batch_norm<float>;
  d.reference_double = reference_batch_norm<double>;
  d.flops_per_element = 6;
  d.samples = {{.inputs = operands({f32_spec({2, 3, 5, 4})}, 3, 2)},
               {.inputs = operands({f32_spec({4, 3})}, 3, 1), .options = with_epsilon(0.25)},
               {.inputs = {f32_spec({3, 2, 7})}},
               {.inputs = operands({f32_spec({2, 1, 2, 3, 2})}, 1, 2)},
               {.inputs = operands({f32_spec({1, 2, 6, 3})}, 2, 2)},
               {.inputs = operands({f32_spec({0, 3, 4})}, 3, 2), .gradient = false}};
  d.must_fail = {{"(C1)", {i32_spec({2, 3})}, {}},
                 {"(C2)", {f32_spec({4})}, {}},
                 {"(C3)", operands({f32_spec({4, 3})}, 4, 1), {}},
                 {"(C3)", operands({f32_spec({4, 3})}, 3, 3), {}},
                 {"(C3)", {f32_spec({4, 3}), {{3}, f16, {}}}, {}},
                 {"(C4)", {f32_spec({4, 3})}, with_epsilon(-1)},
                 {"(C5)", operands({f32_spec({1, 3, 1, 1})}, 3, 2), {}}};
  return d;
}

OpDef inference() {
  OpDef d;
  d.type = "BatchNormInference";
  d.name = "batch_norm_inference";
  d.doc =
      "(x - mean) / √(variance + epsilon)·weight + bias with a mean and a variance for each "
      "channel of x (batch, channels, spatial…). (C1) x is floating point. (C2) x has two or more "
      "axes. (C3) mean, variance, and weight and bias, if given, have one element for each channel "
      "and x's dtype. (C4) epsilon is finite and not negative.";
  d.inputs = {{"x"}, {"mean"}, {"variance"}, {"parameters"}};
  d.variadic = true;
  d.outputs = {"y"};
  d.set_options(BatchNormOptions{});
  d.may_coincide = {{0, 0}};
  d.infer = infer_inference;
  d.grad = gradient_inference;
  d.parts = parts_of_inference;
  d.reference_float = reference_inference<float>;
  d.reference_double = reference_inference<double>;
  d.flops_per_element = 3;
  const std::pair<double, double> positive{0.25, 2};
  d.samples = {
      {.inputs = operands({f32_spec({2, 3, 5, 4})}, 3, 4), .domain = positive},
      {.inputs = operands({f32_spec({4, 3})}, 3, 3),
       .options = with_epsilon(0.25),
       .domain = positive},
      {.inputs = operands({f32_spec({3, 2, 7})}, 2, 2), .domain = positive},
      {.inputs = operands({f32_spec({1, 2, 1, 1})}, 2, 4), .domain = positive},
      {.inputs = operands({f32_spec({0, 3, 4})}, 3, 4), .domain = positive, .gradient = false}};
  d.must_fail = {{"(C1)", {i32_spec({2, 3}), i32_spec({3}), i32_spec({3})}, {}},
                 {"(C2)", operands({f32_spec({4})}, 4, 2), {}},
                 {"(C3)", operands({f32_spec({4, 3})}, 4, 2), {}},
                 {"(C3)", {f32_spec({4, 3}), f32_spec({3}), f32_spec({2})}, {}},
                 {"(C3)", operands({f32_spec({4, 3})}, 3, 5), {}},
                 {"(C4)", operands({f32_spec({4, 3})}, 3, 2), with_epsilon(-1)}};
  return d;
}

OpDef scale() {
  OpDef d;
  d.type = "BatchNormScale";
  d.name = "batch_norm_scale";
  d.audience = Audience::kOperators;
  d.doc =
      "weight / √(variance + epsilon): the factor of batch_norm_inference for each channel. (C1) "
      "variance is floating point. (C2) It has one axis. (C3) weight is like variance. (C4) "
      "epsilon "
      "is finite and not negative.";
  d.inputs = {{"variance"}, {"weight"}};
  d.outputs = {"scale"};
  d.set_options(BatchNormOptions{});
  d.infer = infer_scale;
  d.formula = batch_norm_scale_formula;
  d.reference_float = reference_scale<float>;
  d.reference_double = reference_scale<double>;
  d.flops_per_element = 4;
  const TensorSpec c = f32_spec({4});
  d.samples = {{.inputs = {c, c}, .domain = {0.25, 2}},
               {.inputs = {f32_spec({0}), f32_spec({0})}, .options = with_epsilon(0.25)}};
  d.must_fail = {{"(C1)", {i32_spec({4}), i32_spec({4})}, {}},
                 {"(C2)", {f32_spec({2, 2}), f32_spec({2, 2})}, {}},
                 {"(C3)", {c, f32_spec({3})}, {}},
                 {"(C4)", {c, c}, with_epsilon(-1)}};
  return d;
}

OpDef backward() {
  OpDef d;
  d.type = "BatchNormGrad";
  d.name = "batch_norm_grad";
  d.audience = Audience::kOperators;
  d.doc =
      "Gradients of batch_norm's y with respect to x, weight and bias; of batch_norm_inference's y "
      "unless training. (C1) grad is floating point. (C2) grad has two or more axes. (C3) x is "
      "like grad. (C4) mean, variance, and weight, if given, have one element for each channel and "
      "grad's dtype. (C5) epsilon is finite and not negative.";
  d.inputs = {{"grad"}, {"x"}, {"mean"}, {"variance"}, {"weight"}};
  d.variadic = true;
  d.outputs = {"dx", "dweight", "dbias"};
  d.set_options(BatchNormGradOptions{});
  d.infer = infer_batch_norm_grad;
  d.formula = batch_norm_grad_formula;
  d.reference_float = reference_batch_norm_grad<float>;
  d.reference_double = reference_batch_norm_grad<double>;
  d.flops_per_element = 9;
  const auto sample = [](const Shape& shape, int vectors, bool training) {
    return Sample{.inputs = operands({f32_spec(shape), f32_spec(shape)}, shape[1], vectors),
                  .options = to_attrs(BatchNormGradOptions{.training = training}),
                  .domain = {0.25, 2}};
  };
  d.samples = {sample({2, 3, 5, 4}, 3, true), sample({2, 3, 5, 4}, 3, false),
               sample({4, 3}, 2, true), sample({3, 2, 7}, 3, true), sample({0, 2, 3}, 3, true)};
  const Attrs bad = to_attrs(BatchNormGradOptions{.epsilon = -1});
  const TensorSpec x = f32_spec({4, 3});
  const TensorSpec channel = f32_spec({3});
  d.must_fail = {{"(C1)", {i32_spec({2, 3}), i32_spec({2, 3}), i32_spec({3}), i32_spec({3})}, {}},
                 {"(C2)", operands({f32_spec({4}), f32_spec({4})}, 4, 2), {}},
                 {"(C3)", {x, f32_spec({4, 2}), channel, channel}, {}},
                 {"(C4)", {x, x, f32_spec({4}), channel}, {}},
                 {"(C4)", {x, x, channel, f32_spec({4})}, {}},
                 {"(C4)", {x, x, channel, channel, f32_spec({4})}, {}},
                 {"(C4)", operands({x, x}, 3, 4), {}},
                 {"(C5)", {x, x, channel, channel}, bad}};
  return d;
}

}  // namespace

const OpDef& batch_norm_def() {
  static const OpDef def = forward();
  return def;
}
const OpDef& batch_norm_inference_def() {
  static const OpDef def = inference();
  return def;
}
const OpDef& batch_norm_scale_def() {
  static const OpDef def = scale();
  return def;
}
const OpDef& batch_norm_grad_def() {
  static const OpDef def = backward();
  return def;
}

Tensors batch_norm(TensorArg x, const std::vector<TensorArg>& parameters,
                   const BatchNormOptions& options) {
  std::vector<TensorArg> inputs{x};
  inputs.insert(inputs.end(), parameters.begin(), parameters.end());
  return emit(batch_norm_def(), inputs, to_attrs(options));
}
Tensors batch_norm(TensorArg x, TensorArg weight, TensorArg bias, const BatchNormOptions& options) {
  return batch_norm(x, {weight, bias}, options);
}

Tensor batch_norm_inference(TensorArg x, const std::vector<TensorArg>& parameters, TensorArg mean,
                            TensorArg variance, const BatchNormOptions& options) {
  std::vector<TensorArg> inputs{x, mean, variance};
  inputs.insert(inputs.end(), parameters.begin(), parameters.end());
  return emit_one(batch_norm_inference_def(), inputs, options);
}
Tensor batch_norm_inference(TensorArg x, TensorArg weight, TensorArg bias, TensorArg mean,
                            TensorArg variance, const BatchNormOptions& options) {
  return batch_norm_inference(x, std::vector<TensorArg>{weight, bias}, mean, variance, options);
}

std::vector<const OpDef*> batch_norm_ops() {
  return {&batch_norm_def(), &batch_norm_inference_def(), &batch_norm_scale_def(),
          &batch_norm_grad_def()};
}

}  // namespace sluice::ops
