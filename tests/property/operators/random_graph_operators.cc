#include <algorithm>
#include <array>
#include <limits>
#include <numeric>

#include "random_operators.h"
#include "sluice/ops/ops.h"

namespace sluice::property {
namespace {

int size_of(const Tensor& t, int64_t axis) {
  return static_cast<int>(t.dim(static_cast<int>(axis)));
}

/// An image of `rank` axes: batch, channels and spatial axes.
Tensor image(Draw& d, int rank) {
  std::vector<int64_t> dims{1 + d.dice(2), 1 + d.dice(3)};
  while (static_cast<int>(dims.size()) < rank) dims.push_back(2 + d.dice(4));
  return d.operand({Shape(dims), d.float_dtype(), {}});
}

std::vector<int64_t> sizes(Draw& d, int count, int max) {
  std::vector<int64_t> list(static_cast<size_t>(count));
  for (int64_t& size : list) size = 1 + d.dice(max);
  return list;
}

// --- reductions ---

void reduction(Draw& d) {
  using Function = Tensor (*)(TensorArg, const ops::ReduceOptions&);
  constexpr std::array<Function, 9> kAll{ops::sum, ops::mean,      ops::max,
                                         ops::min, ops::prod,      ops::l1,
                                         ops::l2,  ops::sumsquare, ops::logsumexp};
  const Tensor t = d.number();
  const ops::ReduceOptions o{.axes = d.axes(t), .keepdims = d.dice.one_in(2)};
  d.keep(kAll[static_cast<size_t>(d.dice(9))](t, o));
}

void moment(Draw& d) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kPowers[] = {0, 1, 2, 3, kInfinity, -kInfinity};
  const Tensor t = d.number();
  const ops::ReduceOptions o{.axes = d.axes(t), .keepdims = d.dice.one_in(2)};
  switch (d.dice(4)) {
    case 0:
      return d.keep(ops::var(t, o, d.dice(2)));
    case 1:
      return d.keep(ops::standard_deviation(t, o));
    case 2:
      return d.keep(ops::logsum(ops::abs(t) + 0.25, o));
    default:
      return d.keep(ops::norm(t, kPowers[d.dice(6)], o));
  }
}

void truth(Draw& d) {
  const Tensor t =
      d.dice.one_in(2) ? d.number() : d.operand({random_shape(d.dice, 5), boolean, {}});
  const ops::ReduceOptions o{.axes = d.axes(t), .keepdims = d.dice.one_in(2)};
  d.keep(d.dice.one_in(2) ? ops::any(t, o) : ops::all(t, o));
}

void integer_reduction(Draw& d) {
  const DType dtype = d.dice.one_in(3) ? u32 : i32;
  const Tensor t = d.operand({random_shape(d.dice, 6), dtype, {}}, {-9, 9});
  const ops::ReduceOptions o{.axes = d.axes(t), .keepdims = d.dice.one_in(2)};
  switch (d.dice(dtype == i32 ? 6 : 1)) {
    case 0:
      return d.keep(ops::sum(t, o));
    case 1:
      return d.keep(ops::max(t, o));
    case 2:
      return d.keep(ops::min(t, o));
    case 3:
      return d.keep(ops::prod(t, o));
    case 4:
      return d.keep(ops::argmax(t, {.flatten = true}));
    default:
      return d.keep(ops::cumsum(t, {.axis = d.axis(t)}));
  }
}

// --- along an axis ---

void cumulative(Draw& d) {
  const Tensor t = d.number();
  const int64_t axis = d.axis(t);
  if (d.dice.one_in(3)) return d.keep(ops::cumprod(t, {.axis = axis}));
  d.keep(
      ops::cumsum(t, {.axis = axis, .exclusive = d.dice.one_in(2), .reverse = d.dice.one_in(2)}));
}

/// Sorts a tensor, and reads another one at its indices.
void sorted(Draw& d) {
  const bool integers = d.dice.one_in(4);
  const Tensor t =
      integers ? d.operand({random_shape(d.dice, 6), d.integer_dtype(), {}}, {-9, 9}) : d.number();
  const int64_t axis = d.axis(t);
  const bool flag = d.dice.one_in(2);
  const auto sort = [&]() -> ops::Sorted {
    switch (d.dice(4)) {
      case 0:
        return ops::topk(t, 1 + d.dice(t.rank() == 0 ? 1 : size_of(t, axis)), axis, flag);
      case 1:
        return {t, ops::argsort(t, {.axis = axis, .descending = flag})};
      case 2: {
        const ops::Sorted middle = ops::median(t, axis);
        return {middle.values, middle.indices};
      }
      default:
        return ops::sort(t, {.axis = axis, .descending = flag});
    }
  };
  const auto [values, indices] = sort();
  d.keep(values);
  d.s.keep(indices);
  if (indices.rank() != t.rank()) return d.keep(ops::cast(indices, f32) * 0.25);
  const Tensor other = d.operand({t.shape(), d.float_dtype(), {}});
  d.keep(
      ops::take_along_axis(other, indices, {.axis = axis, .zero_out_of_range = d.dice.one_in(2)}));
}

void along_axis(Draw& d) {
  const Tensor t = d.vector();
  const int64_t axis = d.axis(t);
  const int64_t size = 1 + d.dice(6);
  if (d.dice.one_in(2)) {
    const Tensor at = d.indices(t.shape(), size);
    return d.keep(ops::add_along_axis(t, at, {.axis = axis, .size = size}));
  }
  Shape shape = t.shape();
  shape[static_cast<int>(axis < 0 ? axis + t.rank() : axis)] = size;
  const Tensor at = d.indices(shape, size_of(t, axis));
  d.keep(ops::take_along_axis(t, at, {.axis = axis, .zero_out_of_range = !d.dice.one_in(4)}));
}

void softened(Draw& d) {
  const Tensor t = d.vector();
  const int64_t axis = d.axis(t);
  d.keep(d.dice.one_in(2) ? ops::softmax(t, axis) : ops::log_softmax(t, axis));
}

// --- indices ---

void gathered(Draw& d) {
  const Tensor t = d.vector(256);
  const int64_t axis = d.axis(t);
  const Tensor at = d.indices(random_shape(d.dice, 3), size_of(t, axis));
  const Tensor y = ops::gather(t, at, {.axis = axis, .zero_out_of_range = !d.dice.one_in(4)});
  d.keep(y);
  if (d.dice.one_in(2) || y.elements() > 1024) return;
  const int64_t front = axis < 0 ? axis + t.rank() : axis;
  d.keep(ops::gather_grad(y, at, {.axis = front, .size = size_of(t, axis)}));
}

void expanded_classes(Draw& d) {
  const int64_t classes = 1 + d.dice(6);
  const Tensor at = d.indices(random_shape(d.dice, 4), classes);
  const Tensor values = d.operand({{2}, d.float_dtype(), {}});
  d.keep(ops::onehot(at, values, {.classes = classes, .axis = d.dice.one_in(2) ? 0 : -1}));
}

void counted(Draw& d) {
  if (d.dice.one_in(2)) {
    const int64_t size = 1 + d.dice(8);
    return d.keep(ops::bincount(d.indices(random_shape(d.dice, 6), size), size));
  }
  const Tensor t = ops::detach(d.number());
  d.keep(ops::histogram(t, 1 + d.dice(8), -2, 2));
}

void accumulated_slices(Draw& d) {
  const Tensor source = d.vector(256);
  const Tensor t = d.target(source.spec());
  const int64_t axis = d.axis(t);
  const Tensor at = d.indices({1 + d.dice(6)}, size_of(t, axis));
  Shape shape = t.shape();
  shape[static_cast<int>(axis < 0 ? axis + t.rank() : axis)] = at.dim(0);
  const Tensor x = d.operand({shape, d.float_dtype(), {}});
  if (d.dice.one_in(2)) {
    d.s.keep(ops::sparse_accumulate_(t, x, at, axis, 0.5));
  } else {
    d.s.keep(ops::sparse_accumulate_(t, x, at, axis, d.operand({{}, f32, {}})));
  }
}

// --- movement ---

/// A tensor of any dtype with at least one axis.
Tensor anything(Draw& d) {
  const int kind = d.dice(4);
  if (kind == 0) return d.operand({random_shape(d.dice, 5), boolean, {}});
  if (kind == 1) return d.operand({random_shape(d.dice, 5), d.integer_dtype(), {}}, {-9, 9});
  return d.vector(256);
}

void padded(Draw& d) {
  const Tensor t = d.vector(256);
  const auto mode = static_cast<ops::PadMode>(d.dice(4));
  std::vector<ops::PadWidth> widths;
  for (const int64_t size : t.shape()) {
    const auto max =
        static_cast<int>(std::min<int64_t>(3, mode == ops::PadMode::kReflect ? size - 1 : size));
    widths.push_back({d.dice(max + 1), d.dice(max + 1)});
  }
  d.keep(ops::pad(t, widths, mode, d.dice.real(-1, 1)));
}

void rolled(Draw& d) {
  const Tensor t = anything(d);
  if (t.rank() == 0) return d.keep(ops::flip(t));
  const int64_t axis = d.axis(t);
  switch (d.dice(4)) {
    case 0:
      return d.keep(ops::flip(t, {axis}));
    case 1:
      return d.keep(ops::roll(t, {d.dice(9) - 4}));
    case 2:
      return d.keep(ops::roll(t, {d.dice(9) - 4}, {axis}));
    default:
      return d.keep(ops::select(t, d.dice(size_of(t, axis)), axis));
  }
}

void repeated(Draw& d) {
  const Tensor t = anything(d);
  std::vector<int64_t> counts = sizes(d, t.rank() + d.dice(2), 2);
  if (counts.empty()) counts.push_back(2);
  if (d.dice.one_in(2)) return d.keep(ops::tile(t, counts));
  std::vector<int64_t> dims(t.shape().begin(), t.shape().end());
  dims.insert(dims.begin(), 1 + d.dice(2));
  d.keep(ops::expand(t, Shape(dims)));
}

void windows(Draw& d) {
  const Tensor t = d.vector(256);
  const int64_t axis = d.axis(t);
  const int64_t size = 1 + d.dice(size_of(t, axis));
  d.keep(ops::unfold(t, axis, size, 1 + d.dice(3)));
}

void joined(Draw& d) {
  const Tensor t = anything(d);
  if (t.rank() == 0) return d.keep(ops::stack({t, t}));
  const Tensor other = d.operand(t.spec());
  const int64_t axis = d.axis(t);
  switch (d.dice(d.s.pure || d.s.differentiable ? 3 : 4)) {
    case 0:
      return d.keep(ops::concat({t, other}, axis));
    case 1:
      return d.keep(ops::stack({t, other, t}, d.axis(t)));
    case 2: {
      const int64_t size = size_of(t, axis);
      const int64_t first = d.dice(static_cast<int>(size + 1));
      for (const Tensor& part : ops::split(t, std::vector<int64_t>{first, size - first}, axis))
        d.keep(part);
      return;
    }
    default:
      d.use_view(ops::concat_({d.target(t.spec()), d.target(t.spec())}, axis));
  }
}

ops::SliceOptions slice_of(Draw& d, const Shape& shape) {
  ops::SliceOptions o;
  for (const int64_t size : shape) {
    const int64_t distance = 1 + d.dice(2);
    const int64_t step = d.dice.one_in(4) ? -distance : distance;
    const int64_t start = d.dice(static_cast<int>(size));
    const int64_t most = 1 + (step > 0 ? (size - 1 - start) / step : start / -step);
    o.starts.push_back(start);
    o.steps.push_back(step);
    o.sizes.push_back(1 + d.dice(static_cast<int>(most)));
  }
  return o;
}

void sliced(Draw& d) {
  const Tensor t = anything(d);
  const ops::SliceOptions o = slice_of(d, t.shape());
  d.keep(ops::emit_one(ops::slice_def(), {t}, o));
}

void sliced_update(Draw& d) {
  const Tensor source = anything(d);
  const ops::SliceOptions o = slice_of(d, source.shape());
  const Tensor y = d.operand({Shape(o.sizes), source.dtype(), {}});
  d.s.keep(ops::update_slice_(d.target(source.spec()), y, o));
}

/// A view: a write to it changes its tensor.
void viewed(Draw& d) {
  const Tensor t = d.target(anything(d).spec());
  if (d.dice.one_in(2)) {
    d.use_view(ops::emit_one(ops::slice_in_place_def(), {t}, slice_of(d, t.shape())));
  } else {
    d.use_view(ops::transpose_(t));
  }
}

void reordered(Draw& d) {
  const Tensor t = anything(d);
  if (t.rank() == 0) return d.keep(ops::unsqueeze(t, 0));
  switch (d.dice(4)) {
    case 0: {
      const int64_t axis = d.axis(t);
      return d.keep(ops::swap_axes(t, axis, d.axis(t)));
    }
    case 1:
      return d.keep(ops::flatten(t, d.dice(t.rank()), -1));
    case 2:
      return d.keep(ops::unsqueeze(t, d.axis(t)));
    default:
      return d.keep(ops::transpose(t));
  }
}

// --- images ---

void resized(Draw& d) {
  const int axes = 1 + d.dice(2);
  const Tensor t = image(d, 2 + axes);
  const std::vector<int64_t> size = sizes(d, axes, 5);
  switch (d.dice(3)) {
    case 0:
      return d.keep(ops::adaptive_average_pool(t, size));
    case 1:
      return d.keep(ops::adaptive_max_pool(t, size));
    default:
      return d.keep(ops::interpolate(
          t, size,
          {.mode = static_cast<ops::Interpolation>(d.dice(4)), .align_corners = d.dice.one_in(2)}));
  }
}

void sampled(Draw& d) {
  const Tensor t = image(d, 4);
  const Tensor grid =
      d.operand({{t.dim(0), 1 + d.dice(3), 1 + d.dice(3), 2}, t.dtype(), {}}, {-1.25, 1.25});
  d.keep(ops::grid_sample(
      t, grid,
      {.mode = d.dice.one_in(3) ? ops::Interpolation::kNearest : ops::Interpolation::kLinear,
       .padding = static_cast<ops::GridPadding>(d.dice(3)),
       .align_corners = d.dice.one_in(2)}));
}

void normalised(Draw& d) {
  const Tensor x = image(d, 2 + d.dice(3));
  int kind = d.dice(4);
  const int64_t n = kind == 0 ? x.dim(-1) : x.dim(1);
  if (kind > 0 && x.elements() == n) kind = 2;  // One value has no variance.
  const TensorSpec spec{{n}, x.dtype(), {}};
  std::vector<TensorArg> parameters;
  for (int count = d.dice(3); count > 0; --count) parameters.emplace_back(d.operand(spec));
  if (kind == 0 && parameters.size() < 2 && d.dice.one_in(2))
    return d.keep(parameters.empty() ? ops::rms_norm(x) : ops::rms_norm(x, parameters[0]));
  if (kind == 0) return d.keep(ops::layer_norm(x, parameters));
  if (kind == 1) {
    const bool one_group = x.rank() == 2 || d.dice.one_in(2);
    return d.keep(ops::group_norm(x, parameters, {.groups = one_group ? 1 : n}));
  }
  if (kind == 2) {
    const Tensor mean = d.operand(spec);
    return d.keep(ops::batch_norm_inference(x, parameters, mean, d.operand(spec, {0.25, 2})));
  }
  for (const Tensor& t : ops::batch_norm(x, parameters)) d.keep(t);
}

void rotated(Draw& d) {
  const Tensor x = image(d, 2 + d.dice(3));
  const Tensor table =
      d.operand({{x.dim(-2), 2 * d.dice(static_cast<int>(x.dim(-1)) / 2 + 1)}, x.dtype(), {}});
  d.keep(ops::rotary(x, table, {.interleaved = d.dice.one_in(2), .inverse = d.dice.one_in(3)}));
}

void pooled(Draw& d) {
  const int axes = 1 + d.dice(2);
  const Tensor x = image(d, 2 + axes);
  const auto pad_type = d.dice.one_in(2) ? ops::PadType::kSameUpper : ops::PadType::kSameLower;
  const std::vector<int64_t> kernel = sizes(d, axes, 2), stride = sizes(d, axes, 2);
  if (d.dice.one_in(2))
    return d.keep(ops::max_pool(x, {.kernel = kernel, .stride = stride, .pad_type = pad_type}));
  d.keep(ops::average_pool(x, {.kernel = kernel,
                               .stride = stride,
                               .pad_type = pad_type,
                               .count_padding = d.dice.one_in(2),
                               .divisor = d.dice(3)}));
}

void convolved(Draw& d) {
  const int axes = 1 + d.dice(2);
  const Tensor x = image(d, 2 + axes);
  std::vector<int64_t> dims{1 + d.dice(4), x.dim(1)};
  for (int a = 0; a < axes; ++a) dims.push_back(1 + d.dice(2));
  if (d.dice.one_in(3)) {
    std::swap(dims[0], dims[1]);
    const Tensor w = d.operand({Shape(dims), x.dtype(), {}});
    const std::vector<int64_t> stride(static_cast<size_t>(axes), 2),
        outer(stride.size(), d.dice(2));
    return d.keep(ops::conv_transpose(x, w, {.stride = stride, .output_padding = outer}));
  }
  const Tensor w = d.operand({Shape(dims), x.dtype(), {}});
  const auto pad_type = static_cast<ops::PadType>(d.dice(4));
  d.keep(ops::conv(x, w, {.stride = sizes(d, axes, 2), .pad_type = pad_type}));
}

// --- products, losses, random numbers ---

void multiplied(Draw& d) {
  const Tensor a = d.vector(256);
  const int64_t k = a.dim(-1), n = 1 + d.dice(5);
  const bool transposed = d.dice.one_in(2);
  const Shape shape = transposed ? Shape{n, k} : Shape{k, n};
  const Tensor b = d.operand({shape, a.dtype(), {}});
  d.keep(ops::matmul(a, b, {.rhs_transposed = transposed}));
}

void accumulated_product(Draw& d) {
  const int64_t m = 1 + d.dice(5), n = 1 + d.dice(5), k = 1 + d.dice(8);
  const ops::MatmulOptions o{.lhs_transposed = d.dice.one_in(2),
                             .rhs_transposed = d.dice.one_in(2)};
  const DType dtype = d.float_dtype();
  const auto matrix = [&](int64_t rows, int64_t cols, bool transposed) {
    return d.operand({transposed ? Shape{cols, rows} : Shape{rows, cols}, dtype, {}});
  };
  const Tensor lhs = matrix(m, k, o.lhs_transposed), rhs = matrix(k, n, o.rhs_transposed);
  d.s.keep(ops::matmul_accumulate_(d.target({{m, n}, f32, {}}), lhs, rhs, o));
}

void lost(Draw& d) {
  const Tensor x = d.vector(256);
  const Tensor labels =
      d.indices(Shape(std::vector<int64_t>(x.shape().begin(), x.shape().end() - 1)), x.dim(-1));
  ops::NllLossOptions o{.reduction = static_cast<ops::LossReduction>(d.dice(3)),
                        .has_ignore_index = d.dice.one_in(2)};
  if (d.dice.one_in(3)) return d.keep(ops::cross_entropy(x, labels, o));
  o.log_prob = d.dice.one_in(2);
  d.keep(ops::nll_loss(o.log_prob ? ops::log_softmax(x) : ops::softmax(x), labels, o));
}

void attended(Draw& d) {
  const int64_t batch = 1 + d.dice(2), kv_heads = 1 + d.dice(2), heads = kv_heads * (1 + d.dice(2));
  const int64_t queries = 1 + d.dice(6), keys = 1 + d.dice(6), size = 1 + d.dice(5);
  const DType dtype = d.float_dtype();
  const auto rows = [&](int64_t count, int64_t length, int64_t elements) {
    if (d.dice.one_in(2)) return d.operand({{batch, count, length, elements}, dtype, {}});
    return ops::transpose(d.operand({{batch, length, count, elements}, dtype, {}}), {0, 2, 1, 3});
  };
  const Tensor q = rows(heads, queries, size), k = rows(kv_heads, keys, size);
  const Tensor v = rows(kv_heads, keys, 1 + d.dice(5));
  ops::AttentionOptions o{.causal = d.dice.one_in(2)};
  if (d.dice.one_in(3)) o.window = 1 + d.dice(4);
  if (o.causal || o.window > 0) o.offset = d.dice(4) - 1;
  if (d.dice.one_in(3)) o.mask = d.operand({{heads, 1, keys}, dtype, {}});
  if (d.dice.one_in(3)) {
    o.seed = d.operand({{2}, u32, {}}, {0, 1000});
    o.dropout = 0.25;
  }
  if ((o.causal || o.window > 0) && d.dice.one_in(3)) o.position = d.operand({{}, i32, {}}, {0, 4});
  const Tensor y = ops::attention(q, k, v, o);
  d.keep(d.dice.one_in(2) ? ops::transpose(y, {0, 2, 1, 3}) : y);
}

void randomised(Draw& d) {
  Tensor seed = d.operand({{2}, u32, {}}, {0, 1000});
  if (d.dice.one_in(2)) seed = ops::split_random_seed(seed, 2)[1];
  if (d.dice.one_in(3)) seed = ops::fold_seed(seed, d.operand({{}, u32, {}}, {0, 9}));
  const Shape shape = random_shape(d.dice, 5);
  switch (d.dice(3)) {
    case 0:
      return d.keep(ops::random_normal(seed, shape, 0, 1, d.float_dtype()));
    case 1:
      return d.keep(ops::random_uniform(seed, shape, -1, 1, d.float_dtype()));
    default:
      return d.keep(ops::dropout(d.number(), seed, 0.25));
  }
}

// --- elementwise functions of several operators, and of other dtypes ---

void activated(Draw& d) {
  using Function = Tensor (*)(TensorArg);
  constexpr std::array<Function, 4> kAll{ops::hard_sigmoid, ops::hard_swish, ops::mish,
                                         ops::square};
  d.keep(kAll[static_cast<size_t>(d.dice(4))](d.number()));
}

void chosen_integers(Draw& d) {
  const TensorSpec spec{random_shape(d.dice, 5), d.integer_dtype(), {}};
  const Tensor a = d.operand(spec, {-9, 9}), b = d.operand(spec, {-9, 9});
  d.keep(ops::where(ops::less(a, b), ops::bitwise_xor(a, b), ops::shift_right(a, b)));
}

void counter(Draw& d) {
  const Tensor t = d.target({random_shape(d.dice, 4), i32, {}}, {0, 9});
  const int increment = d.dice(4);
  d.s.keep(ops::increment_mod_(t, increment, 1 + d.dice(6)));
}

/// A step of an optimizer with its state.
void optimised(Draw& d) {
  const Shape shape = random_shape(d.dice, 5);
  const DType dtype = d.float_dtype();
  const Tensor w = d.target({shape, dtype, {}});
  const Tensor g = d.operand({shape, dtype, {}});
  const Tensor m = d.target({shape, f32, {}}, {-1, 1});
  const Tensor v = d.target({shape, f32, {}}, {0.25, 1});
  ops::accumulate_moving_average_(m, ops::cast(g, f32), 0.75);
  const bool infinite = d.dice.one_in(3);
  if (infinite) {
    ops::accumulate_infinity_(v, g, 0.5);
  } else {
    ops::accumulate_square_(v, g, 0.5);
  }
  ops::AdamUpdaterArgs args{.beta1 = ops::HyperArg(0.75), .beta2 = ops::HyperArg(0.5)};
  if (infinite || d.dice.one_in(2)) args.time_step = d.target({{}, f32, {}}, {1, 4});
  if (d.dice.one_in(2)) {
    args.weight = w;
    args.weight_decay = ops::HyperArg(0.125);
  }
  const Tensor step = infinite ? ops::adamax_updater(m, v, args) : ops::adam_updater(m, v, args);
  const Tensor x = ops::cast(step, f32);
  const Tensor r1 = ops::sumsquare_extended(ops::cast(w, f32));
  d.s.keep(ops::adam_var_update(w, ops::cast(x, dtype), r1, ops::sumsquare_extended(x), 0.125,
                                d.dice.one_in(2) ? 2.0 : HUGE_VAL));
  d.keep(ops::scaled_add(x, m, 0.5, d.operand({{}, f32, {}})));
}

struct Entry {
  void (*draw)(Draw&);
  bool writes = false;         ///< It writes in place.
  bool differentiable = true;  ///< Autodiff accepts the ops.
};

constexpr Entry kTable[] = {
    {reduction},
    {reduction},
    {moment},
    {truth},
    {integer_reduction},
    {cumulative},
    {sorted},
    {along_axis},
    {softened},
    {gathered},
    {expanded_classes},
    {counted},
    {accumulated_slices, true},
    {padded},
    {rolled},
    {repeated},
    {windows},
    {joined},
    {sliced},
    {sliced_update, true},
    {viewed, true},
    {reordered},
    {resized},
    {sampled},
    {normalised},
    {rotated},
    {pooled},
    {convolved},
    {multiplied},
    {accumulated_product, true},
    {lost},
    {attended},
    {randomised},
    {activated},
    {chosen_integers},
    {counter, true},
    {optimised, true, false},
};

}  // namespace

bool add_operator(Scope& s, Dice& dice) {
  Draw d{s, dice};
  const int kind = dice(10);
  if (kind < 2) return add_sample(d);
  if (kind < 5) return add_elementwise(d);
  for (;;) {
    const Entry& entry = kTable[dice(static_cast<int>(std::size(kTable)))];
    if (s.differentiable && !entry.differentiable) continue;
    if (entry.writes && (s.pure || (s.differentiable && !dice.one_in(4)))) continue;
    entry.draw(d);
    return entry.writes;
  }
}

}  // namespace sluice::property
