#include "sluice/ops/sort.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "sluice/ops/indexing.h"
#include "sluice/ops/rules.h"
#include "sluice/ops/slice.h"
#include "sluice/ops/take_along_axis.h"

namespace sluice::ops {
namespace {

AxisSplit split_of(const OpView& op) {
  const Shape& shape = op.input(0).shape;
  return AxisSplit(shape, axis_option(op, op.options<SortOptions>().axis, shape, "(C2)"));
}

std::vector<TensorSpec> infer_sort(const OpView& op) {
  const TensorSpec& x = op.input(0);
  require(x.dtype != f64 && x.dtype != i64 && x.dtype != boolean,
          "sort (C1): x must be a number of a device dtype, got {}", to_string(x));
  const AxisSplit split = split_of(op);
  require(split.extent <= std::numeric_limits<int32_t>::max(),
          "sort (C3): an axis must have at most {} elements, got {}",
          std::numeric_limits<int32_t>::max(), split.extent);
  return {{x.shape, x.dtype, {}}, {x.shape, i32, {}}};
}

Tensors grad_sort(GradContext& g) {
  if (!g.has_grad(0)) return {Tensor()};
  const int64_t axis = g.options<SortOptions>().axis;
  return {add_along_axis(g.grad(0), g.output(1), {axis, split_of(g.op()).extent})};
}

/// Whether a precedes b. Compares bits, so that the order does not depend on flushing of denormals.
template <typename E>
bool less(E a, E b) {
  if constexpr (std::is_floating_point_v<E>) {
    if (a != a || b != b) return a == a;
    using Bits = std::conditional_t<sizeof(E) == 8, int64_t, int32_t>;
    const auto signed_size = [](E x) {
      const Bits bits = std::bit_cast<Bits>(x);
      return bits < 0 ? std::numeric_limits<Bits>::min() - bits : bits;
    };
    return signed_size(a) < signed_size(b);
  }
  return a < b;
}

template <typename T>
void reference_sort(const KernelArgs& k) {
  const AxisSplit split = split_of(k.op());
  const bool descending = k.options<SortOptions>().descending;
  visit_element<T>(k.in_dtype(0), [&]<typename E>(E) {
    const E* const x = k.in<E>(0).data();
    E* const y = k.out<E>(0).data();
    int32_t* const indices = k.out<int32_t>(1).data();
    std::vector<int32_t> order(static_cast<size_t>(split.extent));
    for (int64_t l = 0; l < split.lanes(); ++l) {
      const int64_t first = split.lane(l);
      const auto element = [&](int32_t i) { return x[first + i * split.inner]; };
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
        return descending ? less(element(b), element(a)) : less(element(a), element(b));
      });
      for (int64_t i = 0; i < split.extent; ++i) {
        const int32_t from = at(order, i);
        y[first + i * split.inner] = element(from);
        indices[first + i * split.inner] = from;
      }
    }
  });
}

/// Elements [begin, end) along an axis.
Sorted part(const Sorted& s, int64_t axis, int64_t begin, int64_t end) {
  return {slice(s.values, {begin}, {end}, {}, {axis}),
          slice(s.indices, {begin}, {end}, {}, {axis})};
}

}  // namespace

const OpDef& sort_def() {
  static const OpDef def = [] {
    OpDef d;
    d.type = "Sort";
    d.name = "sort";
    d.doc =
        "x sorted along an axis, smallest or largest first, and the positions of the elements in "
        "x. The sort is stable; NaN is larger than every number. (C1) x is a number "
        "of a device dtype. (C2) The axis exists; a scalar has one. (C3) Positions fit int32.";
    d.inputs = {{"x"}};
    d.outputs = {"values", "indices"};
    d.set_options(SortOptions{});
    d.infer = infer_sort;
    d.grad = grad_sort;
    d.reference_float = reference_sort<float>;
    d.reference_double = reference_sort<double>;
    d.flops_per_element = 10;
    const auto with = [](int64_t axis, bool descending) {
      return to_attrs(SortOptions{axis, descending});
    };
    const float nan = std::numeric_limits<float>::quiet_NaN(), inf = HUGE_VALF;
    const std::vector<float> ties{3, nan, -0.0f, 1, 0, -inf, 3, inf, nan, 1};
    d.samples = {{.inputs = {f32_spec({37})}},
                 {.inputs = {f32_spec({3, 5})}, .options = with(0, true)},
                 {.inputs = {f32_spec({2, 4, 3})}, .options = with(1, false)},
                 {.inputs = {f32_spec({10})}, .gradient = false},
                 {.inputs = {f32_spec({10})}, .options = with(0, true), .gradient = false},
                 {.inputs = {{{2, 9}, f16, {}}}, .gradient = false},
                 {.inputs = {{{2, 9}, bf16, {}}}, .options = with(-1, true), .gradient = false},
                 {.inputs = {f32_spec({})}},
                 {.inputs = {f32_spec({3, 0})}},
                 {.inputs = {i32_spec({4, 5})}, .gradient = false},
                 {.inputs = {{{7}, u8, {}}}, .domain = {0, 200}, .gradient = false},
                 {.inputs = {{{7}, u32, {}}}, .domain = {0, 100}, .gradient = false}};
    // Central differences need elements whose order small steps do not change.
    for (size_t i = 0; i < 3; ++i) {
      const Shape& shape = d.samples[i].inputs[0].shape;
      std::vector<float> values;
      for (int64_t e = 0; e < shape.elements(); ++e)
        values.push_back(static_cast<float>(e * 7 % 37) * 0.25f - 4);
      d.samples[i].values = {HostTensor::of<float>(shape, f32, values)};
    }
    d.samples[3].values = {HostTensor::of<float>({10}, f32, ties)};
    d.samples[4].values = d.samples[3].values;
    d.must_fail = {{"(C1)", {{{4}, boolean, {}}}, {}},
                   {"(C1)", {{{4}, f64, {}}}, {}},
                   {"(C2)", {f32_spec({4})}, with(1, false)},
                   {"(C3)", {{{int64_t{1} << 31}, u8, {}}}, {}}};
    return d;
  }();
  return def;
}

std::vector<const OpDef*> sort_ops() { return {&sort_def()}; }

Sorted sort(TensorArg t, const SortOptions& options) {
  const Tensors y = emit(sort_def(), {t}, to_attrs(options));
  return {y[0], y[1]};
}

Tensor argsort(TensorArg t, const SortOptions& options) { return sort(t, options).indices; }

Sorted topk(TensorArg t, int64_t k, int64_t axis, bool largest) {
  const Sorted all = sort(t, {axis, largest});
  const Shape& shape = t->shape();
  const int64_t size = AxisSplit(shape, normalize_axis(axis, axes_of(shape), "topk")).extent;
  require(k >= 0 && k <= size, "topk: k must be in [0, {}], the size of axis {} of {}, got {}",
          size, axis, to_string(shape), k);
  require(k == 1 || !shape.empty(), "topk: k of a scalar must be 1, got {}", k);
  return shape.empty() ? all : part(all, axis, 0, k);
}

Sorted median(TensorArg t, int64_t axis) {
  const Sorted all = sort(t, {axis});
  const Shape& shape = t->shape();
  const int64_t size = AxisSplit(shape, normalize_axis(axis, axes_of(shape), "median")).extent;
  require(size > 0, "median: axis {} of {} has no element", axis, to_string(shape));
  if (shape.empty()) return all;
  return {select(all.values, (size - 1) / 2, axis), select(all.indices, (size - 1) / 2, axis)};
}

}  // namespace sluice::ops
