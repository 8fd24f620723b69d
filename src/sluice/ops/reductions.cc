#include "sluice/ops/reductions.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "sluice/base/numbers/extended_range.h"
#include "sluice/base/reduce.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/cast.h"
#include "sluice/ops/compare.h"
#include "sluice/ops/indexing.h"
#include "sluice/ops/reduction_chunks.h"
#include "sluice/ops/reduction_grads.h"
#include "sluice/ops/reshape.h"
#include "sluice/ops/rules.h"
#include "sluice/ops/scalar_math.h"

namespace sluice::ops {
namespace {

enum class ReduceOp {
  kSum,
  kMean,
  kMax,
  kMin,
  kProd,
  kL1,
  kL2,
  kLogSum,
  kLogSumExp,
  kSumSquare,
  kSumSquareExtended
};

constexpr bool supports_integers(ReduceOp kind) {
  return kind == ReduceOp::kSum || kind == ReduceOp::kMax || kind == ReduceOp::kMin ||
         kind == ReduceOp::kProd;
}
constexpr bool needs_elements(ReduceOp kind) {
  return kind == ReduceOp::kMax || kind == ReduceOp::kMin;
}

/// Adds two numbers; integers wrap around.
template <typename T>
T add(T a, T b) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  else
    return a + b;
}
template <typename T>
T mul(T a, T b) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  else
    return a * b;
}

template <typename T>
T lowest() {
  if constexpr (std::is_integral_v<T>)
    return std::numeric_limits<T>::min();
  else
    return -std::numeric_limits<T>::infinity();
}
template <typename T>
T highest() {
  if constexpr (std::is_integral_v<T>)
    return std::numeric_limits<T>::max();
  else
    return std::numeric_limits<T>::infinity();
}

/// Reduces n elements to one; load(i) is element i.
template <ReduceOp kind, typename T, typename Load>
T reduce(int64_t n, Load load) {
  const auto square = [&](int64_t i) { return load(i) * load(i); };
  const auto sum_of = [n](auto element) { return canonical_reduce(n, T{}, element, add<T>); };
  if constexpr (kind == ReduceOp::kSum) return sum_of(load);
  if constexpr (kind == ReduceOp::kMean) return sum_of(load) / static_cast<T>(n);
  if constexpr (kind == ReduceOp::kMax) return canonical_reduce(n, lowest<T>(), load, math::max<T>);
  if constexpr (kind == ReduceOp::kMin)
    return canonical_reduce(n, highest<T>(), load, math::min<T>);
  if constexpr (kind == ReduceOp::kProd) return canonical_reduce(n, T{1}, load, mul<T>);
  if constexpr (kind == ReduceOp::kL1) return sum_of([&](int64_t i) { return std::fabs(load(i)); });
  if constexpr (kind == ReduceOp::kL2) return std::sqrt(sum_of(square));
  if constexpr (kind == ReduceOp::kLogSum) return math::log(sum_of(load));
  if constexpr (kind == ReduceOp::kSumSquare) return sum_of(square);
  if constexpr (kind == ReduceOp::kSumSquareExtended) {
    return canonical_reduce(
        n, T{}, [&](int64_t i) { return square_extended(load(i)); }, add_extended<T>);
  }
  if constexpr (kind == ReduceOp::kLogSumExp) {
    const T top = canonical_reduce(n, lowest<T>(), load, math::max<T>);
    if (std::isinf(top)) return top;
    return top + math::log(sum_of([&](int64_t i) { return math::exp(load(i) - top); }));
  }
}

template <ReduceOp kind, typename T>
void reference_reduction(const KernelArgs& k) {
  const Reduction r(k.in_shape(0), k.options<ReduceOptions>(), k.op().def().name);
  const StridedIndex lane(r.kept_dims, r.kept_strides);
  const StridedIndex element(r.reduced_dims, r.reduced_strides);
  const auto run = [&]<typename E>(E) {
    const E* x = k.in<E>(0).data();
    const auto y = k.out<E>(0);
    for (size_t o = 0; o < y.size(); ++o) {
      const E* first = x + lane(static_cast<int64_t>(o));
      y[o] = reduce<kind, E>(r.extent, [&](int64_t i) { return first[element(i)]; });
    }
  };
  if constexpr (supports_integers(kind)) {
    if (k.in_dtype(0) == i32) return run(int32_t{});
    if (k.in_dtype(0) == u32) return run(uint32_t{});
  }
  run(T{});
}

template <ReduceOp kind>
std::vector<TensorSpec> infer_reduction(const OpView& op) {
  const TensorSpec& x = op.input(0);
  const std::string& name = op.def().name;
  if constexpr (supports_integers(kind)) {
    require(x.dtype == i32 || x.dtype == u32 || (is_float(x.dtype) && x.dtype != f64),
            "{} (C1): x must be int32, uint32, float32, float16 or bfloat16, got {}; cast it first",
            name, to_string(x));
  } else if constexpr (kind == ReduceOp::kSumSquareExtended) {
    require(x.dtype == f32, "{} (C1): x must be float32, got {}; cast it first", name,
            to_string(x));
  } else {
    require_float(x, name + " (C1): x");
  }
  const Reduction r(x.shape, op.options<ReduceOptions>(), name);
  if (needs_elements(kind)) {
    require(r.extent > 0 || r.out.elements() == 0,
            "{} (C3): must have at least one element to reduce, got shape {}", name,
            to_string(x.shape));
  }
  return {{r.out, x.dtype, {}}};
}

template <ReduceOp kind>
Tensors grad_reduction(GradContext& g) {
  const Shape& in = g.op().input(0).shape;
  const auto options = g.options<ReduceOptions>();
  const Tensor d = g.grad(0);
  if constexpr (kind == ReduceOp::kSum) {
    const Shape kept = Reduction(in, options, "sum").kept;
    return {broadcast_to(d.shape() == kept ? d : reshape(d, kept), in)};
  } else if constexpr (kind == ReduceOp::kMean) {
    return {reduce_mean_grad(d, in, options)};
  } else if constexpr (kind == ReduceOp::kMax) {
    return {reduce_max_grad(d, g.input(0), g.output(0), options)};
  } else if constexpr (kind == ReduceOp::kMin) {
    return {reduce_min_grad(d, g.input(0), g.output(0), options)};
  } else if constexpr (kind == ReduceOp::kProd) {
    return {reduce_prod_grad(d, g.input(0), options)};
  } else if constexpr (kind == ReduceOp::kL1) {
    return {reduce_l1_grad(d, g.input(0), options)};
  } else if constexpr (kind == ReduceOp::kL2) {
    return {reduce_l2_grad(d, g.input(0), g.output(0), options)};
  } else if constexpr (kind == ReduceOp::kLogSum) {
    return {reduce_log_sum_grad(d, g.output(0), in, options)};
  } else if constexpr (kind == ReduceOp::kLogSumExp) {
    return {reduce_log_sum_exp_grad(d, g.input(0), g.output(0), options)};
  } else {
    return {reduce_sum_square_grad(d, g.input(0), options)};
  }
}

/// Parts (OpDef::parts) of a float32 reduction of more than one chunk of elements to one element.
/// Empty for other reductions.
template <ReduceOp kind>
std::vector<OpStage> parts(const OpView& op) {
  static constexpr auto kTo =
      kind == ReduceOp::kMax                                  ? Combination::kMax
      : kind == ReduceOp::kMin                                ? Combination::kMin
      : kind == ReduceOp::kProd                               ? Combination::kProd
      : kind == ReduceOp::kL1                                 ? Combination::kSumMagnitude
      : kind == ReduceOp::kSumSquare || kind == ReduceOp::kL2 ? Combination::kSumSquare
      : kind == ReduceOp::kSumSquareExtended                  ? Combination::kSumSquareExtended
                                                              : Combination::kSum;
  const int64_t count = op.input(0).elements();
  const Shape& result = op.output(0).shape;
  if (result.elements() != 1 || count <= kReduceChunk || op.input(0).dtype != f32) return {};
  const Finish finish = kind == ReduceOp::kMean ? Finish::kDivide
                        : kind == ReduceOp::kL2 ? Finish::kRoot
                                                : Finish::kKeep;
  return {{&reduce_chunks_def(), to_attrs(ReduceChunksOptions{kTo}), {0}, -1},
          {&reduce_total_def(),
           to_attrs(ReduceTotalOptions{kTo, finish, count, result.rank()}),
           {~0},
           0}};
}

template <ReduceOp kind>
OpDef reduction(const char* type, const char* name, const char* formula) {
  constexpr bool extended = kind == ReduceOp::kSumSquareExtended;
  OpDef d;
  d.type = type;
  d.name = name;
  d.doc = std::string(formula) +
          " over the given axes, or all, in the canonical order: 16 interleaved partial results, "
          "then a fixed tree. More than 65,536 elements are reduced in chunks first. (C1) x is " +
          (supports_integers(kind) ? "int32, uint32 (both wrap around) or floating point"
           : extended              ? "float32"
                                   : "floating point") +
          ". (C2) Axes are in range and distinct.";
  if (needs_elements(kind)) d.doc += " (C3) There is at least one element to reduce.";
  d.inputs = {{"x"}};
  d.outputs = {"y"};
  d.set_options(ReduceOptions{});
  d.infer = infer_reduction<kind>;
  d.grad = grad_reduction<kind>;
  if constexpr (kind != ReduceOp::kLogSum && kind != ReduceOp::kLogSumExp) d.parts = parts<kind>;
  d.reference_float = reference_reduction<kind, float>;
  d.reference_double = reference_reduction<kind, double>;
  d.flops = [](const OpView& op) { return static_cast<double>(op.input(0).elements()); };
  const auto over = [](std::vector<int64_t> axes, bool keepdims = false) {
    return to_attrs(ReduceOptions{.axes = std::move(axes), .keepdims = keepdims});
  };
  const std::pair<double, double> domain =
      kind == ReduceOp::kLogSum || kind == ReduceOp::kProd || kind == ReduceOp::kL1
          ? std::pair{0.5, 1.5}
          : std::pair{-2.0, 2.0};
  d.samples = {{.inputs = {f32_spec({37})}, .domain = domain},
               {.inputs = {f32_spec({})}, .domain = {0.5, 1.5}},
               {.inputs = {f32_spec({})}, .options = over({-1}), .domain = {0.5, 1.5}},
               {.inputs = {f32_spec({5, 3})}, .options = over({0}), .domain = domain},
               {.inputs = {f32_spec({5, 3})}, .options = over({-1}, true), .domain = domain},
               {.inputs = {f32_spec({3, 4, 5})}, .options = over({2, 0}), .domain = domain},
               {.inputs = {f32_spec({2, 3, 2})}, .options = over({}, true), .domain = domain},
               {.inputs = {f32_spec({0, 3})}, .options = over({1}), .gradient = false}};
  if (!extended) {
    d.samples.push_back({.inputs = {{{5, 4}, bf16, {}}},
                         .options = over({0}),
                         .domain = domain,
                         .gradient = false});
  }
  if (supports_integers(kind)) {
    d.samples.push_back({.inputs = {i32_spec({4, 6})}, .options = over({1}), .gradient = false});
    d.must_fail.push_back({"(C1)", {{{4}, u8, {}}}, {}});
  } else {
    d.must_fail.push_back({"(C1)", {i32_spec({4})}, {}});
  }
  d.must_fail.push_back({"(C2)", {f32_spec({2, 3})}, over({2})});
  d.must_fail.push_back({"(C2)", {f32_spec({2, 3})}, over({1, -1})});
  d.must_fail.push_back({"(C2)", {f32_spec({})}, over({1})});
  if (needs_elements(kind)) {
    d.must_fail.push_back({"(C3)", {f32_spec({2, 0})}, over({1})});
  } else {
    d.samples.push_back({.inputs = {f32_spec({2, 0})}, .options = over({1}), .gradient = false});
  }
  return d;
}

}  // namespace

Reduction::Reduction(const Shape& in, const ReduceOptions& options, std::string_view what) {
  const int rank = axes_of(in);
  std::set<int64_t> reduced;
  for (const int64_t axis : options.axes) {
    require(axis >= -rank && axis < rank, "{} (C2): axis must be in [{}, {}) for shape {}, got {}",
            what, -rank, rank, to_string(in), axis);
    require(reduced.insert(axis < 0 ? axis + rank : axis).second, "{} (C2): axis {} is given twice",
            what, axis);
  }
  const auto strides = in.strides();
  std::vector<int64_t> kept_shape;
  for (int a = 0; a < in.rank(); ++a) {
    const bool goes = options.axes.empty() || reduced.contains(a);
    (goes ? reduced_dims : kept_dims).push_back(in[a]);
    (goes ? reduced_strides : kept_strides).push_back(at(strides, a));
    kept_shape.push_back(goes ? 1 : in[a]);
    if (goes) extent *= in[a];
  }
  kept = Shape(std::move(kept_shape));
  out = options.keepdims ? kept : Shape(kept_dims);
}

const OpDef& reduce_sum_def() {
  static const OpDef def = reduction<ReduceOp::kSum>("ReduceSum", "sum", "Σx");
  return def;
}
const OpDef& reduce_mean_def() {
  static const OpDef def = reduction<ReduceOp::kMean>("ReduceMean", "mean", "Σx/n");
  return def;
}
const OpDef& reduce_max_def() {
  static const OpDef def =
      reduction<ReduceOp::kMax>("ReduceMax", "max", "The largest element, NaN if there is one,");
  return def;
}
const OpDef& reduce_min_def() {
  static const OpDef def =
      reduction<ReduceOp::kMin>("ReduceMin", "min", "The smallest element, NaN if there is one,");
  return def;
}
const OpDef& reduce_prod_def() {
  static const OpDef def = reduction<ReduceOp::kProd>("ReduceProd", "prod", "Πx");
  return def;
}
const OpDef& reduce_l1_def() {
  static const OpDef def = reduction<ReduceOp::kL1>("ReduceL1", "l1", "Σ|x|");
  return def;
}
const OpDef& reduce_l2_def() {
  static const OpDef def = reduction<ReduceOp::kL2>("ReduceL2", "l2", "√Σx²");
  return def;
}
const OpDef& reduce_log_sum_def() {
  static const OpDef def = reduction<ReduceOp::kLogSum>("ReduceLogSum", "logsum", "log Σx");
  return def;
}
const OpDef& reduce_log_sum_exp_def() {
  static const OpDef def = reduction<ReduceOp::kLogSumExp>("ReduceLogSumExp", "logsumexp",
                                                           "log Σeˣ (as max + log Σeˣ⁻ᵐᵃˣ)");
  return def;
}
const OpDef& reduce_sum_square_def() {
  static const OpDef def = reduction<ReduceOp::kSumSquare>("ReduceSumSquare", "sumsquare", "Σx²");
  return def;
}

const OpDef& reduce_sum_square_extended_def() {
  static const OpDef def = reduction<ReduceOp::kSumSquareExtended>(
      "ReduceSumSquareExtended", "sumsquare_extended",
      "Σx², stored as -Σx²·2^-160 if it overflows float32,");
  return def;
}

Tensor sum(TensorArg t, const ReduceOptions& options) {
  return emit_one(reduce_sum_def(), {t}, options);
}
Tensor mean(TensorArg t, const ReduceOptions& options) {
  return emit_one(reduce_mean_def(), {t}, options);
}
Tensor max(TensorArg t, const ReduceOptions& options) {
  return emit_one(reduce_max_def(), {t}, options);
}
Tensor min(TensorArg t, const ReduceOptions& options) {
  return emit_one(reduce_min_def(), {t}, options);
}
Tensor prod(TensorArg t, const ReduceOptions& options) {
  return emit_one(reduce_prod_def(), {t}, options);
}
Tensor l1(TensorArg t, const ReduceOptions& options) {
  return emit_one(reduce_l1_def(), {t}, options);
}
Tensor l2(TensorArg t, const ReduceOptions& options) {
  return emit_one(reduce_l2_def(), {t}, options);
}
Tensor logsum(TensorArg t, const ReduceOptions& options) {
  return emit_one(reduce_log_sum_def(), {t}, options);
}
Tensor logsumexp(TensorArg t, const ReduceOptions& options) {
  return emit_one(reduce_log_sum_exp_def(), {t}, options);
}
Tensor sumsquare(TensorArg t, const ReduceOptions& options) {
  return emit_one(reduce_sum_square_def(), {t}, options);
}
Tensor sumsquare_extended(TensorArg t, const ReduceOptions& options) {
  return emit_one(reduce_sum_square_extended_def(), {t}, options);
}

Tensor var(TensorArg t, const ReduceOptions& options, double correction) {
  // Σ(x - mean)² of float16 would often be infinite.
  if (t->dtype() == f16 || t->dtype() == bf16)
    return cast({var({cast(t, f32), t.where}, options, correction), t.where}, t->dtype());
  const ReduceOptions kept{.axes = options.axes, .keepdims = true};
  const int64_t n = Reduction(t->shape(), options, "var").extent;
  const double divisor = std::max(0.0, static_cast<double>(n) - correction);
  const Tensor rest = sub(t, {mean(t, kept), t.where});
  return div({sumsquare({rest, t.where}, options), t.where}, divisor);
}

namespace {

// Returns sᵖ for s >= 0 and p > 0. The gradient is 0, not NaN, where s is 0.
Tensor root(const Tensor& s, double p) {
  const Tensor is_zero = equal(s, 0.0);
  const Tensor positive = where(is_zero, 1.0, s);
  return where(is_zero, 0.0, p == 0.5 ? sqrt(positive) : pow(positive, p));
}

}  // namespace

Tensor standard_deviation(TensorArg t, const ReduceOptions& options, double correction) {
  if (t->dtype() == f16 || t->dtype() == bf16) {  // A variance may overflow.
    const Tensor y = standard_deviation({cast(t, f32), t.where}, options, correction);
    return cast({y, t.where}, t->dtype());
  }
  return root(var(t, options, correction), 0.5);
}

Tensor norm(TensorArg t, double p, const ReduceOptions& options) {
  require(!std::isnan(p), "norm: p must be a number, got NaN");
  if (p == 1) return l1(t, options);
  if (p == 2) return l2(t, options);
  if (p == 0) {
    const TensorArg truth{cast(t, boolean), t.where};
    return sum({cast(truth, t->dtype()), t.where}, options);
  }
  const TensorArg size{abs(t), t.where};
  if (std::isinf(p)) return p > 0 ? max(size, options) : min(size, options);
  if (t->dtype() == f16 || t->dtype() == bf16) {  // A power may overflow.
    const Tensor y = norm({cast(t, f32), t.where}, p, options);
    return cast({y, t.where}, t->dtype());
  }
  const Tensor powers = sum({pow(size, p), t.where}, options);
  return p > 0 ? root(powers, 1 / p) : pow({powers, t.where}, 1 / p);
}

Tensor any(TensorArg t, const ReduceOptions& options) {
  // A sum of ones is not 0, however many there are.
  const TensorArg truth{cast(t, boolean), t.where};
  return cast({sum({cast(truth, f32), t.where}, options), t.where}, boolean);
}

Tensor all(TensorArg t, const ReduceOptions& options) {
  const TensorArg is_zero{logical_not({cast(t, boolean), t.where}), t.where};
  return logical_not({any(is_zero, options), t.where});
}

Tensor reduce_to(const Tensor& t, const Shape& shape) {
  if (t.shape() == shape) return t;
  const int lead = t.rank() - shape.rank();
  require(lead >= 0, "reduce_to: {} does not broadcast to {}", to_string(shape),
          to_string(t.shape()));
  ReduceOptions options;
  bool inside = false;
  for (int a = 0; a < t.rank(); ++a) {
    if (a < lead) {
      options.axes.push_back(a);
    } else if (shape[a - lead] != t.shape()[a]) {
      require(shape[a - lead] == 1, "reduce_to: {} does not broadcast to {}", to_string(shape),
              to_string(t.shape()));
      options.axes.push_back(a);
      inside = true;
    }
  }
  // If no axis of size 1 is kept, the sum over the leading axes already has the shape.
  options.keepdims = inside;
  const Tensor y = sum(t, options);
  return y.shape() == shape ? y : reshape(y, shape);
}

std::vector<const OpDef*> reductions_ops() {
  return {&reduce_sum_def(),
          &reduce_mean_def(),
          &reduce_max_def(),
          &reduce_min_def(),
          &reduce_prod_def(),
          &reduce_l1_def(),
          &reduce_l2_def(),
          &reduce_log_sum_def(),
          &reduce_log_sum_exp_def(),
          &reduce_sum_square_def(),
          &reduce_sum_square_extended_def()};
}

}  // namespace sluice::ops
