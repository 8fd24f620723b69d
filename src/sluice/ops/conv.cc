#include "sluice/ops/conv.h"

#include <algorithm>
#include <cmath>

#include "sluice/ir/op_def.h"
#include "sluice/ops/conv_rules.h"
#include "sluice/ops/slice.h"

namespace sluice::ops {
namespace {

/// Returns the padding of both ends of all axes, in the order of the options.
std::vector<int64_t> padding_of(const ConvWindow& w) {
  std::vector<int64_t> both = w.begin;
  both.insert(both.end(), w.end.begin(), w.end.end());
  return both;
}

/// Cuts off the end of a result's gradient if output_padding is so long that a conv() over it would
/// have more positions than x: first from the padding, then from `grad`.
Tensor reached(Tensor grad, ConvWindow& w) {
  for (size_t a = 0; a < w.output_padding.size(); ++a) {
    const int64_t unreached = w.output_padding[a] / w.stride[a] * w.stride[a];
    const int64_t rest = unreached - std::min(unreached, w.end[a]);
    const int axis = static_cast<int>(a) + 2;
    w.end[a] -= unreached - rest;
    if (rest > 0) grad = slice(grad, {0}, {grad.dim(axis) - rest}, {}, {axis});
  }
  return grad;
}

/// Returns the options with which conv_transpose() of the result's gradient is the gradient of x:
/// its result has the shape of x.
ConvTransposeOptions to_x(const ConvWindow& w, int64_t groups, const Shape& x, const Shape& y) {
  ConvTransposeOptions t{
      .stride = w.stride, .padding = padding_of(w), .dilation = w.dilation, .groups = groups};
  for (size_t a = 0; a < w.taps.size(); ++a) {
    const int axis = static_cast<int>(a) + 2;
    const int64_t covered = (y[axis] - 1) * w.stride[a] + w.dilation[a] * (w.taps[a] - 1) + 1;
    t.output_padding.push_back(x[axis] + w.begin[a] + w.end[a] - covered);
  }
  return t;
}

ConvOptions conv_options(const ConvWindow& w, int64_t groups) {
  return {.stride = w.stride, .padding = padding_of(w), .dilation = w.dilation, .groups = groups};
}

ConvWeightGradOptions weight_grad_options(const ConvWindow& w, int64_t groups) {
  return {.kernel = w.taps,
          .stride = w.stride,
          .padding = padding_of(w),
          .dilation = w.dilation,
          .groups = groups};
}

Tensors grad_conv(GradContext& g) {
  const auto o = g.options<ConvOptions>();
  const OpView op = g.op();
  const ConvWindow w = conv_window(op, o);
  const Tensor grad = g.grad(0);
  Tensors result(2);
  if (g.needs(0)) {
    result[0] =
        conv_transpose(grad, g.input(1), to_x(w, o.groups, op.input(0).shape, grad.shape()));
  }
  if (g.needs(1)) result[1] = conv_weight_grad(g.input(0), grad, weight_grad_options(w, o.groups));
  return result;
}

Tensors grad_conv_transpose(GradContext& g) {
  const auto o = g.options<ConvTransposeOptions>();
  const OpView op = g.op();
  ConvWindow w = conv_window(op, o);
  const Tensor grad = reached(g.grad(0), w);
  Tensors result(2);
  if (g.needs(0)) result[0] = conv(grad, g.input(1), conv_options(w, o.groups));
  if (g.needs(1)) result[1] = conv_weight_grad(grad, g.input(0), weight_grad_options(w, o.groups));
  return result;
}

Tensors grad_weight_grad(GradContext& g) {
  const auto o = g.options<ConvWeightGradOptions>();
  const OpView op = g.op();
  const ConvWindow w = conv_window(op, o);
  const Tensor grad = g.grad(0);
  Tensors result(2);
  if (g.needs(0)) {
    result[0] =
        conv_transpose(g.input(1), grad, to_x(w, o.groups, op.input(0).shape, op.input(1).shape));
  }
  if (g.needs(1)) result[1] = conv(g.input(0), grad, conv_options(w, o.groups));
  return result;
}

template <typename T>
T multiply_add(T a, T b, T c) {
  if constexpr (std::is_same_v<T, float>) {
    return std::fma(a, b, c);
  } else {
    return a * b + c;
  }
}

/// Calls f(tap, {depth, row, column of the tap}) in ascending order.
template <typename F>
void for_taps(const ConvSizes& s, F&& f) {
  int64_t tap = 0;
  for (int64_t d = 0; d < s.taps[0]; ++d)
    for (int64_t h = 0; h < s.taps[1]; ++h)
      for (int64_t w = 0; w < s.taps[2]; ++w) f(tap++, std::array<int64_t, 3>{d, h, w});
}

/// Calls f(index) for the positions of `size` in ascending order.
template <typename F>
void for_positions(const std::array<int64_t, 3>& size, F&& f) {
  for (int64_t d = 0; d < size[0]; ++d)
    for (int64_t h = 0; h < size[1]; ++h)
      for (int64_t w = 0; w < size[2]; ++w) f(std::array<int64_t, 3>{d, h, w});
}

/// Returns the element of a plane of `size` at a position, and zero outside.
template <typename T>
T element_at(const T* plane, const std::array<int64_t, 3>& size, const std::array<int64_t, 3>& at) {
  for (size_t a = 0; a < 3; ++a) {
    if (at[a] < 0 || at[a] >= size[a]) return T{0};
  }
  return plane[(at[0] * size[1] + at[1]) * size[2] + at[2]];
}

/// Returns the element of a plane of x that a tap reads for position `at` of y.
template <typename T>
T x_under(const T* plane, const ConvSizes& s, const std::array<int64_t, 3>& at,
          const std::array<int64_t, 3>& tap) {
  std::array<int64_t, 3> from{};
  for (size_t a = 0; a < 3; ++a)
    from[a] = at[a] * s.stride[a] + tap[a] * s.dilation[a] - s.padding[a];
  return element_at(plane, s.x_size, from);
}

template <typename T>
void reference_conv(const KernelArgs& k) {
  const ConvSizes s = conv_sizes(k.op());
  const T* x = k.in<T>(0).data();
  const T* w = k.in<T>(1).data();
  T* y = k.out<T>(0).data();
  const int64_t y_channels = s.groups * s.y_channels;
  for (int64_t plane = 0; plane < s.batch * y_channels; ++plane, y += s.y_positions()) {
    const int64_t sample = plane / y_channels, o = plane % y_channels;
    const T* group = x + (sample * s.groups + o / s.y_channels) * s.x_channels * s.x_positions();
    std::fill_n(y, s.y_positions(), T{0});
    for_taps(s, [&](int64_t tap, const std::array<int64_t, 3>& at_tap) {
      for (int64_t c = 0; c < s.x_channels; ++c) {
        const T weight = w[(o * s.x_channels + c) * s.tap_count() + tap];
        T* to = y;
        for_positions(s.y_size, [&](const std::array<int64_t, 3>& at) {
          *to = multiply_add(weight, x_under(group + c * s.x_positions(), s, at, at_tap), *to);
          ++to;
        });
      }
    });
  }
}

/// Adds the products of one tap to a plane of x: the elements of y that the tap reaches.
template <typename T>
void add_tap(const ConvSizes& s, const std::array<int64_t, 3>& tap, T weight, const T* y, T* x) {
  for_positions(s.x_size, [&](const std::array<int64_t, 3>& at) {
    std::array<int64_t, 3> from{};
    bool strided = true;
    for (size_t a = 0; a < 3; ++a) {
      const int64_t ahead = at[a] + s.padding[a] - tap[a] * s.dilation[a];
      strided = strided && ahead % s.stride[a] == 0;
      from[a] = ahead / s.stride[a];
    }
    if (strided) *x = multiply_add(weight, element_at(y, s.y_size, from), *x);
    ++x;
  });
}

template <typename T>
void reference_conv_transpose(const KernelArgs& k) {
  const ConvSizes s = conv_sizes(k.op());
  const T* y = k.in<T>(0).data();
  const T* w = k.in<T>(1).data();
  T* x = k.out<T>(0).data();
  const int64_t x_channels = s.groups * s.x_channels;
  for (int64_t plane = 0; plane < s.batch * x_channels; ++plane, x += s.x_positions()) {
    const int64_t sample = plane / x_channels, c = plane % x_channels;
    const int64_t group = c / s.x_channels;
    const T* planes = y + (sample * s.groups + group) * s.y_channels * s.y_positions();
    std::fill_n(x, s.x_positions(), T{0});
    for_taps(s, [&](int64_t tap, const std::array<int64_t, 3>& at_tap) {
      for (int64_t o = 0; o < s.y_channels; ++o) {
        const int64_t row = (group * s.y_channels + o) * s.x_channels + c % s.x_channels;
        add_tap(s, at_tap, w[row * s.tap_count() + tap], planes + o * s.y_positions(), x);
      }
    });
  }
}

template <typename T>
void reference_weight_grad(const KernelArgs& k) {
  const ConvSizes s = conv_sizes(k.op());
  const T* x = k.in<T>(0).data();
  const T* y = k.in<T>(1).data();
  T* out = k.out<T>(0).data();
  for (int64_t o = 0; o < s.groups * s.y_channels; ++o) {
    for (int64_t c = 0; c < s.x_channels; ++c) {
      const int64_t x_channel = o / s.y_channels * s.x_channels + c;
      for_taps(s, [&](int64_t, const std::array<int64_t, 3>& tap) {
        T sum{0};
        for (int64_t n = 0; n < s.batch; ++n) {
          const T* plane = x + (n * s.groups * s.x_channels + x_channel) * s.x_positions();
          const T* from = y + (n * s.groups * s.y_channels + o) * s.y_positions();
          for_positions(s.y_size, [&](const std::array<int64_t, 3>& at) {
            sum = multiply_add(x_under(plane, s, at, tap), *from++, sum);
          });
        }
        *out++ = sum;
      });
    }
  }
}

double conv_flops(const OpView& op) {
  const ConvSizes s = conv_sizes(op);
  const auto of = [](int64_t n) { return static_cast<double>(n); };
  return 2.0 * of(s.batch) * of(s.groups * s.y_channels) * of(s.y_positions()) *
         of(s.x_channels * s.tap_count());
}

/// Returns the fields that the definitions have in common.
template <ConvInference (*kRule)(const OpView&)>
OpDef definition(std::string type, std::string name) {
  OpDef d;
  d.type = std::move(type);
  d.name = std::move(name);
  d.infer = [](const OpView& op) -> std::vector<TensorSpec> {
    return {{kRule(op).out, op.input(0).dtype, {}}};
  };
  d.flops = conv_flops;
  return d;
}

Sample sample(Shape first, Shape second, Attrs options, bool gradient = true) {
  return {.inputs = {f32_spec(std::move(first)), f32_spec(std::move(second))},
          .options = std::move(options),
          .gradient = gradient};
}

OpDef define_conv() {
  using O = ConvOptions;
  OpDef d = definition<conv_rule>("Conv", "conv");
  d.doc =
      "Convolution, without flipping the kernel, of x (batch, channels, spatial…) and w (output "
      "channels, channels / groups, taps…). In float32 each element is one chain of fused "
      "multiply-adds from zero, in ascending (taps, channel of the group); positions outside x "
      "count as zeros. (C1) x and w have the same floating dtype. (C2) Both have a batch or "
      "output channels, channels and 1 to 3 spatial axes. (C3) stride, dilation and padding have "
      "one entry for all spatial axes or one for each, padding perhaps two for each; stride and "
      "dilation are at least 1, padding at least 0. (C4) With a pad_type, padding is empty. (C5) "
      "groups divides the "
      "channels of x and the output channels. (C6) w has channels / groups input channels. (C7) "
      "The kernel has taps and fits into x with its padding.";
  d.inputs = {{"x"}, {"w"}};
  d.outputs = {"y"};
  d.set_options(O{});
  d.grad = grad_conv;
  d.reference_float = reference_conv<float>;
  d.reference_double = reference_conv<double>;
  const Shape x{2, 2, 5, 4}, w{3, 2, 3, 2};
  const auto options = [](const O& o) { return to_attrs(o); };
  d.samples = {sample(x, w, {}),
               sample(x, w, options({.padding = {1, 2}})),
               sample(x, w, options({.stride = {2, 3}, .padding = {1, 0, 2, 1}})),
               sample(x, w, options({.padding = {2, 1}, .dilation = {2, 3}})),
               sample(x, w, options({.stride = {2, 1}, .pad_type = PadType::kSameUpper})),
               sample(x, w, options({.stride = {2, 3}, .pad_type = PadType::kSameLower})),
               sample(x, w, options({.pad_type = PadType::kValid})),
               sample({2, 4, 4, 5}, {6, 2, 2, 2}, options({.groups = 2})),
               sample({1, 3, 4, 4}, {6, 1, 3, 3}, options({.padding = {1, 1}, .groups = 3})),
               sample({2, 3, 7}, {2, 3, 3}, options({.stride = {2}, .padding = {1}})),
               sample({1, 2, 3, 4, 3}, {2, 2, 2, 3, 2}, options({.padding = {1, 0, 1}})),
               sample({1, 2, 5, 5}, {3, 2, 5, 5}, {}),
               sample(x, w, options({.stride = {2}, .padding = {1}, .dilation = {2}})),
               sample({2, 1, 9, 9}, {2, 1, 2, 2}, options({.stride = {4, 3}})),
               sample({0, 2, 5, 4}, w, {}, false),
               {.inputs = {{x, f16, {}}, {w, f16, {}}}, .gradient = false}};
  d.must_fail = {
      {"(C1)", {i32_spec(x), i32_spec(w)}},
      {"(C1)", {f32_spec(x), {w, f16, {}}}},
      {"(C2)", {f32_spec({5, 4}), f32_spec({3, 2})}},
      {"(C2)", {f32_spec(x), f32_spec({3, 2, 3})}},
      {"(C3)", {f32_spec(x), f32_spec(w)}, options({.stride = {1, 1, 1}})},
      {"(C3)", {f32_spec(x), f32_spec(w)}, options({.stride = {1, 0}})},
      {"(C3)", {f32_spec(x), f32_spec(w)}, options({.padding = {0, -1}})},
      {"(C3)", {f32_spec(x), f32_spec(w)}, options({.padding = {0, 1, 1}})},
      {"(C3)", {f32_spec(x), f32_spec(w)}, options({.dilation = {0, 1}})},
      {"(C4)",
       {f32_spec(x), f32_spec(w)},
       options({.padding = {1, 1}, .pad_type = PadType::kValid})},
      {"(C4)", {f32_spec(x), f32_spec(w)}, options({.pad_type = static_cast<PadType>(-1)})},
      {"(C5)", {f32_spec(x), f32_spec(w)}, options({.groups = 0})},
      {"(C5)", {f32_spec(x), f32_spec({4, 1, 2, 2})}, options({.groups = 3})},
      {"(C5)", {f32_spec(x), f32_spec({3, 1, 2, 2})}, options({.groups = 2})},
      {"(C6)", {f32_spec(x), f32_spec({3, 3, 3, 2})}},
      {"(C7)", {f32_spec(x), f32_spec({3, 2, 6, 2})}},
      {"(C7)", {f32_spec(x), f32_spec({3, 2, 0, 2})}}};
  return d;
}

OpDef define_transpose() {
  using O = ConvTransposeOptions;
  OpDef d = definition<conv_transpose_rule>("ConvTranspose", "conv_transpose");
  d.doc =
      "Transpose of conv: the gradient of its input, if x is the gradient of its result. x is "
      "(batch, channels, spatial…), w (channels, output channels / groups, taps…). In float32 each "
      "element is one chain of fused multiply-adds from zero, in ascending (taps, channel of x in "
      "the group); taps between the strided elements of x take no part, positions outside x take "
      "part as zeros. (C1) x and w have the same floating dtype. (C2) Both have 1 to 3 spatial "
      "axes. (C3) stride, dilation, padding and output_padding have one entry for all spatial axes "
      "or one for each, padding perhaps two for each; stride and dilation are at least 1, the "
      "others at least 0. (C4) "
      "output_padding is less than the stride or the dilation. (C5) groups divides the channels. "
      "(C6) w has the channels of x. (C7) The kernel has taps, and the result has elements.";
  d.inputs = {{"x"}, {"w"}};
  d.outputs = {"y"};
  d.set_options(O{});
  d.grad = grad_conv_transpose;
  d.reference_float = reference_conv_transpose<float>;
  d.reference_double = reference_conv_transpose<double>;
  const Shape x{2, 3, 3, 4}, w{3, 2, 3, 2};
  const auto options = [](const O& o) { return to_attrs(o); };
  d.samples = {
      sample(x, w, {}),
      sample(x, w, options({.stride = {2, 3}, .padding = {1, 0}})),
      sample(x, w, options({.stride = {2, 3}, .padding = {1, 0, 0, 1}, .output_padding = {1, 2}})),
      sample(x, w, options({.padding = {2, 1}, .dilation = {2, 3}, .output_padding = {1, 2}})),
      sample({2, 4, 3, 3}, {4, 3, 2, 2}, options({.stride = {3, 2}, .groups = 2})),
      sample({2, 3, 5}, {3, 2, 4}, options({.stride = {2}, .padding = {1}})),
      sample({1, 2, 2, 3, 2}, {2, 1, 2, 2, 2}, options({.stride = {2, 1, 2}})),
      sample(x, w,
             options({.stride = {2}, .padding = {1}, .dilation = {3}, .output_padding = {2}})),
      sample({0, 3, 3, 4}, w, {}, false)};
  d.must_fail = {{"(C1)", {i32_spec(x), i32_spec(w)}},
                 {"(C2)", {f32_spec({3, 4}), f32_spec({3, 2})}},
                 {"(C3)", {f32_spec(x), f32_spec(w)}, options({.output_padding = {-1, 0}})},
                 {"(C3)", {f32_spec(x), f32_spec(w)}, options({.padding = {-1, 0}})},
                 {"(C4)", {f32_spec(x), f32_spec(w)}, options({.output_padding = {0, 1}})},
                 {"(C5)", {f32_spec(x), f32_spec(w)}, options({.groups = 2})},
                 {"(C6)", {f32_spec(x), f32_spec({2, 3, 3, 2})}},
                 {"(C7)", {f32_spec(x), f32_spec(w)}, options({.padding = {3, 0}})},
                 {"(C7)", {f32_spec(x), f32_spec({3, 2, 3, 0})}}};
  return d;
}

OpDef define_weight_grad() {
  using O = ConvWeightGradOptions;
  OpDef d = definition<conv_weight_grad_rule>("ConvWeightGrad", "conv_weight_grad");
  d.doc =
      "Gradient of the weight of conv. In float32 each element is one chain of fused multiply-adds "
      "from zero, in ascending (sample, position of y_grad); positions outside x count as "
      "zeros. (C1) x and y_grad have the same floating dtype. (C2) Both have a batch, channels and "
      "1 to 3 spatial axes. (C3) kernel, stride, dilation and padding have an entry for each "
      "spatial axis, padding perhaps two; stride and dilation are at least 1, padding at least 0. "
      "(C5) groups divides the channels of x and of y_grad. (C6) y_grad has the shape of the "
      "convolution's result. (C7) The kernel has taps and fits into x with its padding.";
  d.inputs = {{"x"}, {"y_grad"}};
  d.outputs = {"w_grad"};
  d.set_options(O{});
  d.grad = grad_weight_grad;
  d.reference_float = reference_weight_grad<float>;
  d.reference_double = reference_weight_grad<double>;
  const Shape x{2, 2, 5, 4};
  const auto options = [](const O& o) { return to_attrs(o); };
  d.samples = {
      sample(x, {2, 3, 3, 3}, options({.kernel = {3, 2}})),
      sample(x, {2, 3, 3, 2},
             options({.kernel = {3, 2}, .stride = {2, 3}, .padding = {1, 0, 2, 1}})),
      sample(x, {2, 3, 5, 3}, options({.kernel = {3, 2}, .padding = {2, 1}, .dilation = {2, 3}})),
      sample({2, 4, 4, 5}, {2, 6, 3, 4}, options({.kernel = {2, 2}, .groups = 2})),
      sample({2, 3, 7}, {2, 2, 4}, options({.kernel = {3}, .stride = {2}, .padding = {1}})),
      sample({1, 2, 3, 4, 3}, {1, 2, 2, 2, 2}, options({.kernel = {2, 3, 2}})),
      sample({0, 2, 5, 4}, {0, 3, 3, 3}, options({.kernel = {3, 2}}), false)};
  d.must_fail = {
      {"(C1)", {i32_spec(x), i32_spec({2, 3, 3, 3})}, options({.kernel = {3, 2}})},
      {"(C2)", {f32_spec({5, 4}), f32_spec({3, 3})}, options({.kernel = {}})},
      {"(C3)", {f32_spec(x), f32_spec({2, 3, 3, 3})}, options({.kernel = {3}})},
      {"(C5)", {f32_spec(x), f32_spec({2, 3, 3, 3})}, options({.kernel = {3, 2}, .groups = 2})},
      {"(C6)", {f32_spec(x), f32_spec({2, 3, 3, 4})}, options({.kernel = {3, 2}})},
      {"(C7)", {f32_spec(x), f32_spec({2, 3, 3, 3})}, options({.kernel = {6, 2}})},
      {"(C7)", {f32_spec(x), f32_spec({2, 3, 3, 3})}, options({.kernel = {0, 2}})}};
  return d;
}

}  // namespace

const OpDef& conv_def() {
  static const OpDef def = define_conv();
  return def;
}

const OpDef& conv_transpose_def() {
  static const OpDef def = define_transpose();
  return def;
}

const OpDef& conv_weight_grad_def() {
  static const OpDef def = define_weight_grad();
  return def;
}

std::vector<const OpDef*> conv_ops() {
  return {&conv_def(), &conv_transpose_def(), &conv_weight_grad_def()};
}

Tensor conv(TensorArg x, TensorArg w, const ConvOptions& options) {
  return emit_one(conv_def(), {x, w}, options);
}

Tensor conv_transpose(TensorArg x, TensorArg w, const ConvTransposeOptions& options) {
  return emit_one(conv_transpose_def(), {x, w}, options);
}

Tensor conv_weight_grad(TensorArg x, TensorArg y_grad, const ConvWeightGradOptions& options) {
  return emit_one(conv_weight_grad_def(), {x, y_grad}, options);
}

}  // namespace sluice::ops
