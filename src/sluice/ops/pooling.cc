#include "sluice/ops/pooling.h"

#include <algorithm>
#include <limits>

#include "sluice/ops/pool_shape.h"
#include "sluice/ops/reductions.h"
#include "sluice/ops/rules.h"
#include "sluice/ops/scalar_math.h"

namespace sluice::ops {
namespace {

constexpr std::string_view kWindowRules =
    " (C1) x is floating point. (C2) x has a batch, channels and 1 to 3 spatial axes. (C3) kernel, "
    "stride and dilation have one number of at least 1 for all spatial axes or one for each; a "
    "window has fewer than 2³¹ elements. (C4) padding is for all axes, for each, or starts and "
    "then ends, from 0 to half of a window; it is empty unless pad_type is explicit; with pad_type "
    "same_upper or same_lower, ceil_mode is false. (C5) A window fits into the padded input.";

/// The tap's dtype is the smaller one that holds the number of each element of a window.
DType dtype_of_taps(const PoolShape& s) { return s.tap_count() <= 256 ? u8 : i32; }

Shape output_shape(const PoolShape& s, const Shape& x) {
  std::vector<int64_t> dims{x[0], x[1]};
  for (auto a = s.axes.end() - (x.rank() - 2); a != s.axes.end(); ++a) dims.push_back(a->y);
  return Shape(dims);
}

std::vector<TensorSpec> infer_pool(const OpView& op) {
  const TensorSpec& x = op.input(0);
  require_float(x, op.def().name + " (C1): x");
  const PoolShape s = pool_shape(op);
  const bool is_taps = &op.def() == &max_pool_taps_def();
  return {{output_shape(s, x.shape), is_taps ? dtype_of_taps(s) : x.dtype, {}}};
}

template <typename Options>
std::vector<TensorSpec> infer_pool_grad(const OpView& op) {
  const TensorSpec& grad = op.input(0);
  const std::string& name = op.def().name;
  require_float(grad, name + " (C1): grad");
  const Shape shape = op.options<Options>().shape;
  const PoolShape s = pool_shape(op);
  const Shape y = output_shape(s, shape);
  require(grad.shape == y, "{} (C7): grad must have shape {} for an operand of shape {}, got {}",
          name, to_string(y), to_string(shape), to_string(grad));
  if (op.inputs() == 2) {
    const TensorSpec want{y, dtype_of_taps(s), {}};
    require(op.input(1).shape == want.shape && op.input(1).dtype == want.dtype,
            "{} (C7): taps must be {}, got {}", name, to_string(want), to_string(op.input(1)));
  }
  return {{shape, grad.dtype, {}}};
}

using Position = std::array<int64_t, 3>;

/// Calls f(position, index) for each output position of a plane, in ascending order.
template <typename F>
void for_each_window(const PoolShape& s, F f) {
  int64_t index = 0;
  for (int64_t d = 0; d < s.axes[0].y; ++d) {
    for (int64_t h = 0; h < s.axes[1].y; ++h) {
      for (int64_t w = 0; w < s.axes[2].y; ++w) f(Position{d, h, w}, index++);
    }
  }
}

/// Calls f(tap, index of the element in its plane of x) for each element of the window at `o`, in
/// ascending order.
template <typename F>
void for_each_element(const PoolShape& s, const Position& o, F f) {
  const auto& [depth, height, width] = s.axes;
  for (int64_t i = depth.first_tap(o[0]); i < depth.end_tap(o[0]); ++i) {
    const int64_t d = depth.start(o[0]) + i * depth.dilation;
    for (int64_t j = height.first_tap(o[1]); j < height.end_tap(o[1]); ++j) {
      const int64_t h = height.start(o[1]) + j * height.dilation;
      for (int64_t k = width.first_tap(o[2]); k < width.end_tap(o[2]); ++k) {
        const int64_t w = width.start(o[2]) + k * width.dilation;
        f((i * height.kernel + j) * width.kernel + k, (d * height.x + h) * width.x + w);
      }
    }
  }
}

/// v if it is larger than m, else m; m if v is NaN.
template <typename T>
T larger(T v, T m) {
  if constexpr (std::is_same_v<T, float>)
    return simd::max(simd::F1(v), simd::F1(m)).v;
  else
    return v > m ? v : m;
}

template <typename T>
void reference_max(const KernelArgs& k) {
  const PoolShape s = pool_shape(k.op());
  const T* x = k.in<T>(0).data();
  T* y = k.out<T>(0).data();
  for (int64_t p = 0; p < s.planes; ++p, x += s.x_positions(), y += s.y_positions()) {
    for_each_window(s, [&](const Position& o, int64_t index) {
      T largest = -std::numeric_limits<T>::infinity();
      bool is_nan = false;
      for_each_element(s, o, [&](int64_t, int64_t at) {
        is_nan |= x[at] != x[at];
        largest = larger(x[at], largest);
      });
      y[index] = is_nan ? std::numeric_limits<T>::quiet_NaN() : largest;
    });
  }
}

template <typename T>
void reference_taps(const KernelArgs& k) {
  const PoolShape s = pool_shape(k.op());
  visit_element<T>(k.out_dtype(0), [&]<typename E>(E) {
    const T* x = k.in<T>(0).data();
    E* taps = k.out<E>(0).data();
    for (int64_t p = 0; p < s.planes; ++p, x += s.x_positions(), taps += s.y_positions()) {
      for_each_window(s, [&](const Position& o, int64_t index) {
        int64_t best = -1;  // The first element is taken even if it is -inf.
        T largest = -std::numeric_limits<T>::infinity();
        for_each_element(s, o, [&](int64_t tap, int64_t at) {
          const T v = x[at];
          if (best < 0 || v > largest || v != v) {
            best = tap;
            largest = v;
          }
        });
        taps[index] = static_cast<E>(std::max<int64_t>(best, 0));
      });
    }
  });
}

template <typename T>
void reference_max_grad(const KernelArgs& k) {
  const PoolShape s = pool_shape(k.op());
  visit_element<T>(k.in_dtype(1), [&]<typename E>(E) {
    const T* grad = k.in<T>(0).data();
    const E* taps = k.in<E>(1).data();
    T* dx = k.out<T>(0).data();
    std::fill_n(dx, k.out<T>(0).size(), T{0});
    for (int64_t p = 0; p < s.planes; ++p, dx += s.x_positions()) {
      for_each_window(s, [&](const Position& o, int64_t index) {
        const auto taken = static_cast<int64_t>(taps[index]);
        for_each_element(s, o, [&](int64_t tap, int64_t at) {
          if (tap == taken) dx[at] += grad[index];
        });
      });
      grad += s.y_positions();
      taps += s.y_positions();
    }
  });
}

/// The number that divides the sum of the window at `o`.
template <typename T>
T divisor_of(const PoolShape& s, const Position& o) {
  const int64_t count = s.count(0, o[0]) * s.count(1, o[1]) * s.count(2, o[2]);
  return static_cast<T>(s.divisor > 0 ? s.divisor : count);
}

template <typename T>
void reference_average(const KernelArgs& k) {
  const PoolShape s = pool_shape(k.op());
  const T* x = k.in<T>(0).data();
  T* y = k.out<T>(0).data();
  for (int64_t p = 0; p < s.planes; ++p, x += s.x_positions(), y += s.y_positions()) {
    for_each_window(s, [&](const Position& o, int64_t index) {
      T sum = 0;
      for_each_element(s, o, [&](int64_t, int64_t at) { sum += x[at]; });
      y[index] = sum / divisor_of<T>(s, o);
    });
  }
}

template <typename T>
void reference_average_grad(const KernelArgs& k) {
  const PoolShape s = pool_shape(k.op());
  const T* grad = k.in<T>(0).data();
  T* dx = k.out<T>(0).data();
  std::fill_n(dx, k.out<T>(0).size(), T{0});
  for (int64_t p = 0; p < s.planes; ++p, grad += s.y_positions(), dx += s.x_positions()) {
    for_each_window(s, [&](const Position& o, int64_t index) {
      const T share = grad[index] / divisor_of<T>(s, o);
      for_each_element(s, o, [&](int64_t, int64_t at) { dx[at] += share; });
    });
  }
}

Tensors gradient_of_max(GradContext& g) {
  const auto o = g.options<PoolOptions>();
  const Tensor taps =
      g.forward([&](const Tensors& in, const Tensors&) { return max_pool_taps(in[0], o); });
  return {max_pool_grad(g.grad(0), taps, g.op().input(0).shape, o)};
}

Tensors gradient_of_average(GradContext& g) {
  return {average_pool_grad(g.grad(0), g.op().input(0).shape, g.options<AveragePoolOptions>())};
}

Tensors gradient_of_average_grad(GradContext& g) {
  const AveragePoolOptions o = g.options<AveragePoolGradOptions>();
  return {average_pool(g.grad(0), o)};
}

double pool_flops(const OpView& op) {
  const PoolShape s = pool_shape(op);
  return static_cast<double>(s.planes) * static_cast<double>(s.y_positions()) *
         static_cast<double>(s.tap_count());
}

/// Shapes and windows of the samples: the common cases, and each option.
std::vector<std::pair<Shape, PoolOptions>> sample_windows() {
  return {{{2, 3, 8, 8}, {.kernel = {2, 2}}},
          {{1, 2, 7, 9}, {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}}},
          {{2, 1, 11}, {.kernel = {3}, .stride = {1}, .dilation = {2}}},
          {{1, 2, 4, 5, 6}, {.kernel = {2, 3, 2}, .stride = {2, 1, 2}, .padding = {1, 0, 1}}},
          {{1, 1, 7, 6}, {.kernel = {3, 2}, .stride = {2, 3}, .ceil_mode = true}},
          {{2, 1, 5, 5}, {.kernel = {5, 5}}},
          {{1, 2, 7, 6}, {.kernel = {3}, .stride = {2}, .padding = {1}, .dilation = {1}}},
          {{1, 2, 9}, {.kernel = {2}, .stride = {4}, .padding = {0, 1}}},
          {{1, 1, 5, 6}, {.kernel = {3, 4}, .stride = {2, 2}, .pad_type = PadType::kSameUpper}},
          {{1, 1, 5, 6}, {.kernel = {3, 4}, .stride = {2, 2}, .pad_type = PadType::kSameLower}},
          {{0, 2, 4, 4}, {.kernel = {2, 2}, .pad_type = PadType::kValid}}};
}

/// Shapes and windows that a constraint excludes.
std::vector<std::pair<const char*, std::pair<Shape, PoolOptions>>> bad_windows() {
  return {
      {"(C2)", {{4, 4}, {.kernel = {2}}}},
      {"(C3)", {{1, 1, 4, 4}, {.kernel = {2, 2, 2}}}},
      {"(C3)", {{1, 1, 4}, {.kernel = {2}, .stride = {0}}}},
      {"(C3)", {{1, 1, 4}, {.kernel = {2}, .dilation = {1, 1}}}},
      {"(C4)", {{1, 1, 4}, {.kernel = {3}, .padding = {2}}}},
      {"(C4)", {{1, 1, 4}, {.kernel = {3}, .padding = {-1}}}},
      {"(C4)", {{1, 1, 4}, {.kernel = {3}, .padding = {1, 1, 1}}}},
      {"(C4)", {{1, 1, 4}, {.kernel = {3}, .padding = {1}, .pad_type = PadType::kValid}}},
      {"(C4)", {{1, 1, 4}, {.kernel = {3}, .ceil_mode = true, .pad_type = PadType::kSameUpper}}},
      {"(C4)", {{1, 1, 4}, {.kernel = {3}, .pad_type = static_cast<PadType>(4)}}},
      {"(C5)", {{1, 1, 4}, {.kernel = {5}}}},
      {"(C5)", {{1, 1, 0}, {.kernel = {2}, .padding = {1}}}}};
}

AveragePoolOptions average_options(const PoolOptions& o) {
  return {.kernel = o.kernel,
          .stride = o.stride,
          .padding = o.padding,
          .dilation = o.dilation,
          .ceil_mode = o.ceil_mode,
          .pad_type = o.pad_type};
}

template <typename Options, typename Windows>
Attrs grad_options(const Windows& o, const Shape& shape) {
  Options all;
  static_cast<Windows&>(all) = o;
  all.shape = shape;
  return to_attrs(all);
}

OpDef pool(const char* type, const char* name, std::string doc) {
  OpDef d;
  d.type = type;
  d.name = name;
  d.doc = std::move(doc) + std::string(kWindowRules);
  d.flops = pool_flops;
  return d;
}

/// Sets up an operator on x with PoolOptions.
OpDef pool_of_x(const char* type, const char* name, std::string doc, const char* output) {
  OpDef d = pool(type, name, std::move(doc));
  d.inputs = {{"x"}};
  d.outputs = {output};
  d.set_options(PoolOptions{});
  d.infer = infer_pool;
  for (const auto& [shape, o] : sample_windows())
    d.samples.push_back({.inputs = {f32_spec(shape)}, .options = to_attrs(o)});
  d.must_fail = {{"(C1)", {i32_spec({1, 1, 4})}, to_attrs(PoolOptions{.kernel = {2}})}};
  for (const auto& [constraint, bad] : bad_windows())
    d.must_fail.push_back({constraint, {f32_spec(bad.first)}, to_attrs(bad.second)});
  return d;
}

TensorSpec with_dtype(TensorSpec spec, DType dtype) { return {std::move(spec.shape), dtype, {}}; }

/// Returns the spec of y for a sample.
TensorSpec pooled(const Shape& x, const PoolOptions& o) {
  return f32_spec(output_shape(pool_shape(f32_spec(x), o, "sample"), x));
}

/// Returns the sizes of the spatial axes.
std::vector<int64_t> spatial_sizes(const Tensor& x, std::string_view name) {
  require(x.rank() >= 3, "{}: x must have a batch, channels and spatial axes, got {}", name,
          to_string(x.spec()));
  return {x.shape().begin() + 2, x.shape().end()};
}

}  // namespace

const OpDef& max_pool_def() {
  static const OpDef def = [] {
    OpDef d = pool_of_x("MaxPool", "max_pool",
                        "The largest element of each window. NaN is the largest; positions outside "
                        "x take no part.",
                        "y");
    d.grad = gradient_of_max;
    d.reference_float = reference_max<float>;
    d.reference_double = reference_max<double>;
    for (const DType dtype : {f16, bf16}) {
      d.samples.push_back({.inputs = {{{1, 2, 4, 6}, dtype, {}}},
                           .options = to_attrs(PoolOptions{.kernel = {2, 2}}),
                           .gradient = false});
    }
    return d;
  }();
  return def;
}

const OpDef& max_pool_taps_def() {
  static const OpDef def = [] {
    OpDef d = pool_of_x("MaxPoolTaps", "max_pool_taps",
                        "The row-major number, in its window, of the first largest element or of "
                        "the last NaN. Its dtype is uint8 for windows of up to 256 elements, else "
                        "int32.",
                        "taps");
    d.traits = kZeroGradient;
    d.reference_float = reference_taps<float>;
    d.reference_double = reference_taps<double>;
    d.samples.push_back({.inputs = {f32_spec({1, 1, 17, 18})},
                         .options = to_attrs(PoolOptions{.kernel = {17, 16}, .stride = {1, 1}})});
    return d;
  }();
  return def;
}

const OpDef& max_pool_grad_def() {
  static const OpDef def = [] {
    OpDef d = pool("MaxPoolGrad", "max_pool_grad",
                   "Each element is the sum of grad over the windows whose tap is this element, "
                   "from zero in ascending order.");
    d.doc +=
        " The x of (C1) to (C5) is an operand of the given shape and grad's dtype. (C7) grad "
        "and taps have the shape of y, and taps its dtype for these windows.";
    d.inputs = {{"grad"}, {"taps"}};
    d.outputs = {"dx"};
    d.set_options(MaxPoolGradOptions{});
    d.infer = infer_pool_grad<MaxPoolGradOptions>;
    d.reference_float = reference_max_grad<float>;
    d.reference_double = reference_max_grad<double>;
    for (const auto& [shape, o] : sample_windows()) {
      const TensorSpec y = pooled(shape, o);
      d.samples.push_back({.inputs = {y, with_dtype(y, u8)},
                           .options = grad_options<MaxPoolGradOptions>(o, shape),
                           .domain = {-2, 4}});
    }
    const Attrs two = grad_options<MaxPoolGradOptions>(PoolOptions{.kernel = {2}}, {1, 1, 4});
    const TensorSpec y = f32_spec({1, 1, 2});
    d.must_fail = {{"(C1)", {with_dtype(y, i32), with_dtype(y, u8)}, two},
                   {"(C7)", {f32_spec({1, 1, 3}), with_dtype(y, u8)}, two},
                   {"(C7)", {y, with_dtype(y, i32)}, two}};
    for (const auto& [constraint, bad] : bad_windows()) {
      d.must_fail.push_back({constraint,
                             {y, with_dtype(y, u8)},
                             grad_options<MaxPoolGradOptions>(bad.second, bad.first)});
    }
    return d;
  }();
  return def;
}

const OpDef& average_pool_def() {
  static const OpDef def = [] {
    OpDef d = pool("AveragePool", "average_pool",
                   "The average of each window: the sum in ascending order from zero, divided by "
                   "the count of positions inside x (with count_padding also of the padding), or "
                   "by divisor if it is not 0.");
    d.doc += " (C6) divisor is at least 0.";
    d.inputs = {{"x"}};
    d.outputs = {"y"};
    d.set_options(AveragePoolOptions{});
    d.infer = infer_pool;
    d.grad = gradient_of_average;
    d.reference_float = reference_average<float>;
    d.reference_double = reference_average<double>;
    for (const auto& [shape, o] : sample_windows()) {
      AveragePoolOptions a = average_options(o);
      d.samples.push_back({.inputs = {f32_spec(shape)}, .options = to_attrs(a)});
      if (o.padding.empty() && !o.ceil_mode) continue;
      a.count_padding = true;
      d.samples.push_back({.inputs = {f32_spec(shape)}, .options = to_attrs(a)});
      a.divisor = 5;
      d.samples.push_back({.inputs = {f32_spec(shape)}, .options = to_attrs(a)});
    }
    const AveragePoolOptions two{.kernel = {2}};
    d.must_fail = {{"(C1)", {i32_spec({1, 1, 4})}, to_attrs(two)},
                   {"(C6)",
                    {f32_spec({1, 1, 4})},
                    to_attrs(AveragePoolOptions{.kernel = {2}, .divisor = -1})}};
    for (const auto& [constraint, bad] : bad_windows()) {
      d.must_fail.push_back(
          {constraint, {f32_spec(bad.first)}, to_attrs(average_options(bad.second))});
    }
    return d;
  }();
  return def;
}

const OpDef& average_pool_grad_def() {
  static const OpDef def = [] {
    OpDef d = pool("AveragePoolGrad", "average_pool_grad",
                   "Each element is the sum of grad, divided as in average_pool, over the windows "
                   "with this element, from zero in ascending order.");
    d.doc +=
        " The x of (C1) to (C5) is an operand of the given shape and grad's dtype. (C6) "
        "divisor is at least 0. (C7) grad has the shape of y.";
    d.inputs = {{"grad"}};
    d.outputs = {"dx"};
    d.set_options(AveragePoolGradOptions{});
    d.infer = infer_pool_grad<AveragePoolGradOptions>;
    d.grad = gradient_of_average_grad;
    d.reference_float = reference_average_grad<float>;
    d.reference_double = reference_average_grad<double>;
    for (const auto& [shape, o] : sample_windows()) {
      d.samples.push_back(
          {.inputs = {pooled(shape, o)},
           .options = grad_options<AveragePoolGradOptions>(average_options(o), shape)});
    }
    AveragePoolOptions two{.kernel = {2}};
    const Attrs good = grad_options<AveragePoolGradOptions>(two, {1, 1, 4});
    two.divisor = -1;
    const TensorSpec y = f32_spec({1, 1, 2});
    d.must_fail = {{"(C1)", {with_dtype(y, i32)}, good},
                   {"(C6)", {y}, grad_options<AveragePoolGradOptions>(two, {1, 1, 4})},
                   {"(C7)", {f32_spec({1, 1, 3})}, good}};
    for (const auto& [constraint, bad] : bad_windows()) {
      d.must_fail.push_back(
          {constraint,
           {y},
           grad_options<AveragePoolGradOptions>(average_options(bad.second), bad.first)});
    }
    return d;
  }();
  return def;
}

std::vector<const OpDef*> pooling_ops() {
  return {&max_pool_def(), &max_pool_taps_def(), &max_pool_grad_def(), &average_pool_def(),
          &average_pool_grad_def()};
}

Tensor max_pool(TensorArg x, const PoolOptions& options) {
  return emit_one(max_pool_def(), {x}, options);
}

Tensor max_pool_taps(TensorArg x, const PoolOptions& options) {
  return emit_one(max_pool_taps_def(), {x}, options);
}

Tensor max_pool_grad(TensorArg grad, TensorArg taps, const Shape& shape,
                     const PoolOptions& options) {
  return emit(max_pool_grad_def(), {grad, taps},
              grad_options<MaxPoolGradOptions>(options, shape))[0];
}

Tensor average_pool(TensorArg x, const AveragePoolOptions& options) {
  return emit_one(average_pool_def(), {x}, options);
}

Tensor average_pool_grad(TensorArg grad, const Shape& shape, const AveragePoolOptions& options) {
  return emit(average_pool_grad_def(), {grad},
              grad_options<AveragePoolGradOptions>(options, shape))[0];
}

Tensor global_average_pool(TensorArg x) {
  std::vector<int64_t> axes;
  for (size_t a = 0; a < spatial_sizes(x, "global_average_pool").size(); ++a)
    axes.push_back(static_cast<int64_t>(a) + 2);
  return mean(x, {.axes = axes, .keepdims = true});
}

Tensor global_max_pool(TensorArg x) {
  return max_pool(x, {.kernel = spatial_sizes(x, "global_max_pool")});
}

}  // namespace sluice::ops
