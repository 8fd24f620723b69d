#include "sluice/ops/attention.h"

#include <cmath>
#include <numeric>

#include "sluice/ops/arithmetic.h"
#include "sluice/ops/concat.h"
#include "sluice/ops/gather.h"
#include "sluice/ops/reshape.h"
#include "sluice/ops/rules.h"
#include "sluice/ops/slice.h"

namespace sluice::ops {
namespace {

std::vector<TensorSpec> infer_rotary(const OpView& op) {
  const TensorSpec& x = op.input(0);
  const TensorSpec& table = op.input(1);
  require_float(x, "rotary (C1): x");
  require(x.shape.rank() >= 2, "rotary (C2): x must have axes (…, length, size), got shape {}",
          to_string(x.shape));
  require(table.dtype == x.dtype && table.shape.rank() == 2 && table.shape[0] == x.shape.dim(-2),
          "rotary (C3): table must have {} rows of {} for x {}, got {}", x.shape.dim(-2),
          name_of(x.dtype), to_string(x), to_string(table));
  require(table.shape[1] % 2 == 0 && table.shape[1] <= x.shape.dim(-1),
          "rotary (C4): table must have an even number of columns, at most {}, got {}",
          x.shape.dim(-1), table.shape[1]);
  return {{x.shape, x.dtype, {}}};
}

template <typename T>
void reference_rotary(const KernelArgs& k) {
  const auto o = k.options<RotaryOptions>();
  const int64_t length = k.in_shape(1)[0], half = k.in_shape(1)[1] / 2;
  const int64_t size = k.in_shape(0).dim(-1);
  const int64_t rows = size == 0 ? 0 : k.in_shape(0).elements() / size;
  const int64_t step = o.interleaved ? 2 : 1;      // From one pair to the next.
  const int64_t apart = o.interleaved ? 1 : half;  // From one element of a pair to the other.
  for (int64_t row = 0; row < rows; ++row) {
    const T* const x = k.in<T>(0).data() + row * size;
    const T* const cosine = k.in<T>(1).data() + row % length * 2 * half;
    const T* const sine = cosine + half;
    T* const y = k.out<T>(0).data() + row * size;
    for (int64_t i = 0; i < half; ++i) {
      const T a = x[i * step], b = x[i * step + apart];
      const T c = cosine[i], s = sine[i];
      y[i * step] = o.inverse ? a * c + b * s : a * c - b * s;
      y[i * step + apart] = o.inverse ? b * c - a * s : b * c + a * s;
    }
    std::copy(x + 2 * half, x + size, y + 2 * half);
  }
}

/// The first elements of the pairs of t (…, length, size), then the second ones: each (…, length,
/// half).
std::pair<Tensor, Tensor> pairs_of(const Tensor& t, int64_t half, bool interleaved) {
  const int last = t.rank() - 1;
  const auto part = [&](int64_t first, int64_t end, int64_t step) {
    return slice(t, {first}, {end}, {step}, {last});
  };
  if (interleaved) return {part(0, 2 * half, 2), part(1, 2 * half, 2)};
  return {part(0, half, 1), part(half, 2 * half, 1)};
}

Tensors grad_rotary(GradContext& g) {
  auto o = g.options<RotaryOptions>();
  const Shape table = g.op().input(1).shape;
  Tensor of_table;
  if (g.needs(1)) {
    const auto [a, b] = pairs_of(g.input(0), table[1] / 2, o.interleaved);
    const auto [da, db] = pairs_of(g.grad(0), table[1] / 2, o.interleaved);
    const Shape half{table[0], table[1] / 2};
    const Tensor sine = reduce_to(o.inverse ? da * b - db * a : db * a - da * b, half);
    of_table = concat({reduce_to(da * a + db * b, half), sine}, 1);
  }
  if (!g.needs(0)) return {Tensor{}, of_table};
  const Tensor angles = g.input(1);
  o.inverse = !o.inverse;
  return {rotary(g.grad(0), angles, o), of_table};
}

Attrs rotary_pairs(bool interleaved, bool inverse = false) {
  return to_attrs(RotaryOptions{.interleaved = interleaved, .inverse = inverse});
}

OpDef make_rotary() {
  OpDef d;
  d.type = "Rotary";
  d.name = "rotary";
  d.doc =
      "Rotates pairs (a, b) of elements of each row by the angles of its position: (a·cos - b·sin, "
      "b·cos + a·sin). x is (…, length, size); row p of table has the cosines of position p, then "
      "its sines. Elements of x after as many as table has columns stay. (C1) x is floating point. "
      "(C2) x has two or more axes. (C3) table has two axes, one row for each position, and x's "
      "dtype. (C4) The number of columns of table is even and not above size.";
  d.inputs = {{"x"}, {"table"}};
  d.outputs = {"y"};
  d.set_options(RotaryOptions{});
  d.may_coincide = {{0, 0}};
  d.infer = infer_rotary;
  d.grad = grad_rotary;
  d.reference_float = reference_rotary<float>;
  d.reference_double = reference_rotary<double>;
  d.flops_per_element = 3;
  const TensorSpec table = f32_spec({3, 4});
  d.samples = {
      {.inputs = {f32_spec({2, 2, 3, 4}), table}},
      {.inputs = {f32_spec({2, 3, 4}), table}, .options = rotary_pairs(true)},
      {.inputs = {f32_spec({3, 7}), table}, .options = rotary_pairs(false, true)},
      {.inputs = {f32_spec({2, 3, 5}), table}, .options = rotary_pairs(true, true)},
      {.inputs = {f32_spec({3, 4}), f32_spec({3, 0})}, .gradient = false},
      {.inputs = {f32_spec({0, 3, 4}), table}, .gradient = false},
  };
  d.must_fail = {{"(C1)", {i32_spec({3, 4}), i32_spec({3, 4})}, {}},
                 {"(C2)", {f32_spec({4}), table}, {}},
                 {"(C3)", {f32_spec({2, 4}), table}, {}},
                 {"(C3)", {f32_spec({3, 4}), {Shape{3, 4}, f16, {}}}, {}},
                 {"(C3)", {f32_spec({3, 4}), f32_spec({3})}, {}},
                 {"(C4)", {f32_spec({3, 4}), f32_spec({3, 3})}, {}},
                 {"(C4)", {f32_spec({3, 4}), f32_spec({3, 6})}, {}}};
  return d;
}

}  // namespace

const OpDef& rotary_def() {
  static const OpDef def = make_rotary();
  return def;
}

std::vector<const OpDef*> rotary_ops() { return {&rotary_def()}; }

Tensor rotary_table(Graph& graph, const RotaryTableOptions& options) {
  const auto& [positions, size, base] = options;
  require(positions > 0, "rotary_table: positions must be at least 1, got {}", positions);
  require(size > 0 && size % 2 == 0, "rotary_table: size must be positive and even, got {}", size);
  require(base > 0 && std::isfinite(base), "rotary_table: base must be positive and finite, got {}",
          base);
  HostTensor table(f32_spec({positions, size}));
  const std::span<float> values = table.as<float>();
  for (int64_t p = 0; p < positions; ++p) {
    for (int64_t i = 0; i < size / 2; ++i) {
      const double angle = static_cast<double>(p) * std::pow(base, -2.0 * static_cast<double>(i) /
                                                                       static_cast<double>(size));
      at(values, p * size + i) = static_cast<float>(std::cos(angle));
      at(values, p * size + size / 2 + i) = static_cast<float>(std::sin(angle));
    }
  }
  return graph.constant(std::move(table), "rotary_table");
}

Tensor rotary_rows(TensorArg table, int64_t first, int64_t length) {
  const Shape& shape = table.tensor.shape();
  require(shape.rank() == 2 && first >= 0 && length >= 0 && first <= shape[0] - length,
          "rotary_rows: the table must have rows [{}, {}), got shape {}", first, first + length,
          to_string(shape));
  return slice(table, {first}, {first + length});
}

Tensor rotary_rows(TensorArg table, TensorArg first, int64_t length) {
  const Shape& shape = table.tensor.shape();
  const TensorSpec& spec = first.tensor.spec();
  require(shape.rank() == 2, "rotary_rows: the table must have two axes, got shape {}",
          to_string(shape));
  require_index(spec, "rotary_rows: first");
  require(spec.shape.empty(), "rotary_rows: first must be a scalar, got {}", to_string(spec));
  require(length >= 0, "rotary_rows: length must not be negative, got {}", length);
  std::vector<int32_t> steps(static_cast<size_t>(length));
  std::iota(steps.begin(), steps.end(), 0);
  const HostTensor offsets = HostTensor::of<int32_t>({length}, i32, steps).cast(spec.dtype);
  return gather(table, first.tensor + first.tensor.graph().constant(offsets));
}

Tensor rotary(TensorArg x, TensorArg table, const RotaryOptions& options) {
  return emit_one(rotary_def(), {x, table}, options);
}

}  // namespace sluice::ops
