#include "sluice/ops/cumsum.h"

#include "sluice/ops/arithmetic.h"
#include "sluice/ops/cast.h"
#include "sluice/ops/compare.h"
#include "sluice/ops/indexing.h"
#include "sluice/ops/reductions.h"
#include "sluice/ops/reshape.h"
#include "sluice/ops/rules.h"

namespace sluice::ops {
namespace {

std::vector<TensorSpec> infer_cumsum(const OpView& op) {
  const TensorSpec& x = op.input(0);
  require(is_float(x.dtype) ? x.dtype != f64 : x.dtype == i32 || x.dtype == u32,
          "cumsum (C1): x must be float32, float16, bfloat16, int32 or uint32, got {}",
          to_string(x));
  axis_option(op, op.options<CumsumOptions>().axis, x.shape, "(C2)");
  return {{x.shape, x.dtype, {}}};
}

// An element counts for the sums from it on: in the opposite direction.
Tensors grad_cumsum(GradContext& g) {
  auto o = g.options<CumsumOptions>();
  o.reverse = !o.reverse;
  return {cumsum(g.grad(0), o)};
}

template <typename T>
void reference_cumsum(const KernelArgs& k) {
  const auto o = k.options<CumsumOptions>();
  const Shape& shape = k.in_shape(0);
  const AxisSplit split(shape, normalize_axis(o.axis, axes_of(shape), "cumsum"));
  visit_element<T>(k.in_dtype(0), [&]<typename E>(E) {
    using Sum = std::conditional_t<std::is_integral_v<E>, uint32_t, E>;
    const E* const x = k.in<E>(0).data();
    E* const y = k.out<E>(0).data();
    for (int64_t l = 0; l < split.lanes(); ++l) {
      Sum sum{};
      for (int64_t i = 0; i < split.extent; ++i) {
        const int64_t at = split.lane(l) + (o.reverse ? split.extent - 1 - i : i) * split.inner;
        const Sum before = sum;
        sum = static_cast<Sum>(sum + static_cast<Sum>(x[at]));
        y[at] = static_cast<E>(o.exclusive ? before : sum);
      }
    }
  });
}

std::vector<TensorSpec> infer_cumprod(const OpView& op) {
  const TensorSpec& x = op.input(0);
  require(is_float(x.dtype) ? x.dtype != f64 : x.dtype == i32 || x.dtype == u32,
          "{} (C1): x must be float32, float16, bfloat16, int32 or uint32, got {}", op.def().name,
          to_string(x));
  axis_option(op, op.options<CumprodOptions>().axis, x.shape, "(C2)");
  for (int i = 1; i < op.inputs(); ++i)
    require(is_float(x.dtype) && op.input(i).shape == x.shape && op.input(i).dtype == x.dtype,
            "{} (C3): operands must have one floating-point dtype and shape, got {} and {}",
            op.def().name, to_string(x), to_string(op.input(i)));
  return {{x.shape, x.dtype, {}}};
}

Tensors grad_cumprod(GradContext& g) {
  return {emit_one(cumprod_grad_def(), {g.input(0), g.grad(0)}, g.options<CumprodOptions>())};
}

template <typename T>
void reference_cumprod(const KernelArgs& k) {
  const Shape& shape = k.in_shape(0);
  const AxisSplit split(
      shape, normalize_axis(k.options<CumprodOptions>().axis, axes_of(shape), "cumprod"));
  visit_element<T>(k.in_dtype(0), [&]<typename E>(E) {
    using Product = std::conditional_t<std::is_integral_v<E>, uint32_t, E>;
    const E* const x = k.in<E>(0).data();
    E* const y = k.out<E>(0).data();
    for (int64_t l = 0; l < split.lanes(); ++l) {
      Product product{1};
      for (int64_t i = 0; i < split.extent; ++i) {
        const int64_t at = split.lane(l) + i * split.inner;
        product = static_cast<Product>(product * static_cast<Product>(x[at]));
        y[at] = static_cast<E>(product);
      }
    }
  });
}

// With y[i] = y[i-1]·x[i], the gradient of y[i] is a[i] = g[i] + a[i+1]·x[i+1], and that of x[i] is
// a[i]·y[i-1]. No element is divided by another, so zeros are no special case.
template <typename T>
void reference_cumprod_grad(const KernelArgs& k) {
  const Shape& shape = k.in_shape(0);
  const AxisSplit split(
      shape, normalize_axis(k.options<CumprodOptions>().axis, axes_of(shape), "cumprod_grad"));
  const T* const x = k.in<T>(0).data();
  const T* const g = k.in<T>(1).data();
  T* const dx = k.out<T>(0).data();
  for (int64_t l = 0; l < split.lanes(); ++l) {
    const auto at = [&](int64_t i) { return split.lane(l) + i * split.inner; };
    T before = 1;  // The product of the elements before i.
    for (int64_t i = 0; i < split.extent; ++i) {
      dx[at(i)] = before;
      before *= x[at(i)];
    }
    T sum = 0;
    for (int64_t i = split.extent; i-- > 0;) {
      sum = g[at(i)] + (i + 1 < split.extent ? sum * x[at(i + 1)] : T{0});
      dx[at(i)] *= sum;
    }
  }
}

// A bool matrix of n rows and columns that broadcasts to (outer, n, n, inner).
template <typename Holds>
Tensor square_mask(Graph& graph, int64_t n, Holds holds) {
  std::vector<float> all;
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < n; ++j) all.push_back(holds(i, j) ? 1.0f : 0.0f);
  }
  return graph.constant(HostTensor::of<float>({1, n, n, 1}, f32, all).cast(boolean), "mask");
}

// dx[i] is the sum over k >= i of g[k] times the product of the elements up to k but x[i]. The
// products are n² elements a lane, which are cumulative products too: zeros are no special case.
Tensors cumprod_grad_formula(const OpView& op, const Tensors& in) {
  const TensorSpec& x = op.input(0);
  const AxisSplit split(
      x.shape, normalize_axis(op.options<CumprodOptions>().axis, axes_of(x.shape), "cumprod_grad"));
  const int64_t n = split.extent;
  const Shape square{split.outer, n, n, split.inner}, row{split.outer, 1, n, split.inner};
  const auto spread = [&](const Tensor& t) {
    return broadcast_to(reshape(cast(t, f32), row), square);
  };
  Graph& graph = in[0].graph();
  const Tensor others = square_mask(graph, n, [](int64_t i, int64_t j) { return i != j; });
  const Tensor later = square_mask(graph, n, [](int64_t i, int64_t j) { return i <= j; });
  const Tensor products = cumprod(where(others, spread(in[0]), 1.0), {.axis = 2});
  const Tensor dx = sum(where(later, products * spread(in[1]), 0.0), {.axes = {2}});
  return {cast(reshape(dx, x.shape), x.dtype)};
}

OpDef cumulative_product(const char* type, const char* name, const char* doc) {
  OpDef d;
  d.type = type;
  d.name = name;
  d.doc = doc;
  d.inputs = {{"x"}};
  d.outputs = {"y"};
  d.set_options(CumprodOptions{});
  d.infer = infer_cumprod;
  d.flops_per_element = 1;
  return d;
}

}  // namespace

const OpDef& cumprod_def() {
  static const OpDef def = [] {
    OpDef d = cumulative_product(
        "CumProd", "cumprod",
        "Cumulative products along an axis, multiplied in order. (C1) x is floating point, int32 "
        "or uint32. (C2) The axis exists; a scalar has one.");
    d.grad = grad_cumprod;
    d.reference_float = reference_cumprod<float>;
    d.reference_double = reference_cumprod<double>;
    const auto axis = [](int64_t a) { return to_attrs(CumprodOptions{a}); };
    d.samples = {
        {.inputs = {f32_spec({9})}},
        {.inputs = {f32_spec({3, 5})}, .options = axis(-1)},
        {.inputs = {f32_spec({2, 4, 3})}, .options = axis(1)},
        {.inputs = {{{3, 4}, f16, {}}}, .options = axis(1)},
        {.inputs = {f32_spec({})}},
        {.inputs = {f32_spec({3, 0})}, .options = axis(1)},
        {.inputs = {f32_spec({4})}, .values = {HostTensor::of<float>({4}, f32, {2, 0, 3, 5})}},
        {.inputs = {i32_spec({4, 5})}, .gradient = false}};
    d.must_fail = {{"(C1)", {{{4}, boolean, {}}}, {}}, {"(C2)", {f32_spec({4})}, axis(1)}};
    return d;
  }();
  return def;
}

const OpDef& cumprod_grad_def() {
  static const OpDef def = [] {
    OpDef d = cumulative_product(
        "CumProdGrad", "cumprod_grad",
        "The gradient of cumprod, right for zeros too. (C1) x is floating point. (C2) The axis "
        "exists. (C3) g has the dtype and shape of x.");
    d.audience = Audience::kOperators;
    d.inputs.push_back({"g"});
    d.formula = cumprod_grad_formula;
    d.reference_float = reference_cumprod_grad<float>;
    d.reference_double = reference_cumprod_grad<double>;
    const auto axis = [](int64_t a) { return to_attrs(CumprodOptions{a}); };
    d.samples = {{.inputs = {f32_spec({9}), f32_spec({9})}},
                 {.inputs = {f32_spec({2, 4, 3}), f32_spec({2, 4, 3})}, .options = axis(1)},
                 {.inputs = {f32_spec({5}), f32_spec({5})},
                  .values = {HostTensor::of<float>({5}, f32, {2, 0, 3, 0, 5})}}};
    d.must_fail = {{"(C1)", {{{4}, boolean, {}}, f32_spec({4})}, {}},
                   {"(C2)", {f32_spec({4}), f32_spec({4})}, axis(1)},
                   {"(C3)", {f32_spec({4}), f32_spec({3})}, {}}};
    return d;
  }();
  return def;
}

const OpDef& cumsum_def() {
  static const OpDef def = [] {
    OpDef d;
    d.type = "CumSum";
    d.name = "cumsum";
    d.doc =
        "Cumulative sums along an axis, added in order: up to each element, or before it "
        "(exclusive); from the first or, with reverse, from the last. (C1) x is floating point, "
        "int32 or uint32. (C2) The axis exists; a scalar has one.";
    d.inputs = {{"x"}};
    d.outputs = {"y"};
    d.set_options(CumsumOptions{});
    d.infer = infer_cumsum;
    d.grad = grad_cumsum;
    d.reference_float = reference_cumsum<float>;
    d.reference_double = reference_cumsum<double>;
    d.flops_per_element = 1;
    const auto with = [](int64_t axis, bool exclusive, bool reverse) {
      return to_attrs(CumsumOptions{axis, exclusive, reverse});
    };
    d.samples = {{.inputs = {f32_spec({37})}},
                 {.inputs = {f32_spec({3, 5})}, .options = with(-1, true, false)},
                 {.inputs = {f32_spec({2, 4, 19})}, .options = with(1, false, true)},
                 {.inputs = {f32_spec({2, 3, 2})}, .options = with(0, true, true)},
                 {.inputs = {{{3, 4}, f16, {}}}, .options = with(1, false, false)},
                 {.inputs = {{{3, 4}, bf16, {}}}, .options = with(0, false, true)},
                 {.inputs = {f32_spec({})}},
                 {.inputs = {f32_spec({3, 0})}, .options = with(1, false, false)},
                 {.inputs = {i32_spec({4, 5})}, .gradient = false},
                 {.inputs = {{{6}, u32, {}}}, .options = with(0, true, true), .gradient = false}};
    d.samples.back().domain = {0, 100};
    d.must_fail = {{"(C1)", {{{4}, boolean, {}}}, {}},
                   {"(C1)", {{{4}, f64, {}}}, {}},
                   {"(C2)", {f32_spec({4})}, with(1, false, false)},
                   {"(C2)", {f32_spec({})}, with(-2, false, false)}};
    return d;
  }();
  return def;
}

std::vector<const OpDef*> cumsum_ops() {
  return {&cumsum_def(), &cumprod_def(), &cumprod_grad_def()};
}

Tensor cumsum(TensorArg t, const CumsumOptions& options) {
  return emit_one(cumsum_def(), {t}, options);
}

Tensor cumprod(TensorArg t, const CumprodOptions& options) {
  return emit_one(cumprod_def(), {t}, options);
}

}  // namespace sluice::ops
