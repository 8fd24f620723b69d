#include "sluice/ops/strided_matrices.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "sluice/ops/indexing.h"
#include "sluice/ops/rules.h"

namespace sluice::ops {
namespace {

constexpr std::string_view kType = "StridedMatMul";

// The axes of some matrices: (size, stride).
using Axes = std::vector<std::pair<int64_t, int64_t>>;

Axes axes_of_matrices(const StridedMatmulOptions& o, const std::vector<int64_t>& list, int64_t rows,
                      int64_t cols) {
  const StridedMatrices s(list);
  Axes axes{{rows, s.row}, {cols, s.col}};
  for (size_t i = 0; i < o.batch.size(); ++i) axes.emplace_back(o.batch[i], s.batch[i]);
  return axes;
}

// Requires that all elements are inside of a tensor.
void require_inside(const StridedMatmulOptions& o, const std::vector<int64_t>& list, int64_t rows,
                    int64_t cols, const TensorSpec& spec, const char* name) {
  const int64_t elements = spec.elements();
  int64_t low = list[0], high = list[0];
  bool fits = list[0] >= 0 && list[0] < elements;
  for (const auto& [size, stride] : axes_of_matrices(o, list, rows, cols)) {
    if (size == 1 || stride == 0) continue;
    fits =
        fits && -elements < stride && stride < elements && size - 1 <= elements / std::abs(stride);
    if (!fits) break;
    (stride < 0 ? low : high) += (size - 1) * stride;
    fits = low >= 0 && high < elements;
  }
  require(fits, "strided_matmul (C3): matrices of {} must lie inside of it, got {} with [{}]", name,
          to_string(spec), fmt::join(list, ", "));
}

std::vector<TensorSpec> infer_strided(const OpView& op) {
  require_float(op.input(0), "strided_matmul (C1): lhs");
  require(op.input(0).dtype == op.input(1).dtype,
          "strided_matmul (C1): rhs must have the dtype of lhs, {}, got {}",
          name_of(op.input(0).dtype), to_string(op.input(1)));
  const auto o = op.options<StridedMatmulOptions>();
  std::vector<int64_t> sizes = o.batch;
  sizes.insert(sizes.end(), {o.m, o.n, o.k});
  for (const int64_t size : sizes)
    require(size >= 1, "strided_matmul (C2): sizes must be at least 1, got {}", size);
  static_cast<void>(Shape(sizes).elements());  // An error if it overflows.
  for (const auto* list : {&o.lhs, &o.rhs, &o.out})
    require(list->size() == o.batch.size() + 3,
            "strided_matmul (C2): an offset and strides of {} axes are {} numbers, got {}",
            o.batch.size() + 2, o.batch.size() + 3, list->size());
  require_inside(o, o.lhs, o.m, o.k, op.input(0), "lhs");
  require_inside(o, o.rhs, o.k, o.n, op.input(1), "rhs");
  for (const int64_t size : o.shape)
    require(size >= 1, "strided_matmul (C4): sizes of the result must be at least 1, got {}", size);
  // From the smallest stride on, each axis continues where the one before it ends.
  Axes axes = axes_of_matrices(o, o.out, o.m, o.n);
  std::erase_if(axes, [](const auto& axis) { return axis.first == 1; });
  std::sort(axes.begin(), axes.end(),
            [](const auto& a, const auto& b) { return a.second < b.second; });
  int64_t next = 1;
  bool covers = o.out[0] == 0;
  for (const auto& [size, stride] : axes) {
    covers = covers && stride == next;
    next *= size;
  }
  require(covers && next == Shape(o.shape).elements(),
          "strided_matmul (C4): the matrices must cover the result of shape {} once, got [{}]",
          to_string(Shape(o.shape)), fmt::join(o.out, ", "));
  return {{Shape(o.shape), op.input(0).dtype, {}}};
}

template <typename T>
void reference_strided(const KernelArgs& args) {
  const auto o = args.options<StridedMatmulOptions>();
  const StridedMatrices a(o.lhs), b(o.rhs), c(o.out);
  const auto as = a.offsets(o.batch), bs = b.offsets(o.batch), cs = c.offsets(o.batch);
  const T* const lhs = args.in<T>(0).data();
  const T* const rhs = args.in<T>(1).data();
  T* const out = args.out<T>(0).data();
  for (size_t batch = 0; batch < cs.size(); ++batch) {
    for (int64_t i = 0; i < o.m; ++i) {
      for (int64_t j = 0; j < o.n; ++j) {
        T sum = 0;
        for (int64_t k = 0; k < o.k; ++k) {
          const T p = lhs[as[batch] + i * a.row + k * a.col];
          const T q = rhs[bs[batch] + k * b.row + j * b.col];
          if constexpr (std::is_same_v<T, float>)
            sum = std::fma(p, q, sum);
          else
            sum += p * q;
        }
        out[cs[batch] + i * c.row + j * c.col] = sum;
      }
    }
  }
}

}  // namespace

std::vector<int64_t> StridedMatrices::offsets(const std::vector<int64_t>& sizes) const {
  std::vector<int64_t> all(static_cast<size_t>(Shape(sizes).elements()));
  const StridedIndex index(sizes, batch, offset);
  for (size_t i = 0; i < all.size(); ++i) all[i] = index(static_cast<int64_t>(i));
  return all;
}

const OpDef& strided_matmul_def() {
  static const OpDef def = [] {
    OpDef d;
    d.type = kType;
    d.name = "strided_matmul";
    d.audience = Audience::kOperators;
    d.doc =
        "A matrix product for each index of the batch axes, of matrices that lie in their tensors "
        "at an offset and with strides; the compiler makes it of a product and the transposes, "
        "slices and splits around it. (C1) Both operands have the same floating dtype. (C2) Sizes "
        "are positive, and there is a stride for each axis. (C3) The matrices lie in the operands. "
        "(C4) The results cover the tensor, each element once.";
    d.inputs = {{"lhs"}, {"rhs"}};
    d.outputs = {"y"};
    d.set_options(StridedMatmulOptions{});
    d.infer = infer_strided;
    d.reference_float = reference_strided<float>;
    d.reference_double = reference_strided<double>;
    d.flops = [](const OpView& op) {
      const auto o = op.options<StridedMatmulOptions>();
      return 2.0 * static_cast<double>(Shape(o.batch).elements()) * static_cast<double>(o.m) *
             static_cast<double>(o.n) * static_cast<double>(o.k);
    };
    // Heads of attention, read from (batch, length, head, size), and their merged results.
    const StridedMatmulOptions heads{.batch = {2, 3},
                                     .m = 5,
                                     .n = 4,
                                     .k = 7,
                                     .lhs = {0, 105, 35, 7, 1},
                                     .rhs = {3, 120, 4, 16, 1},
                                     .out = {0, 60, 4, 12, 1},
                                     .shape = {10, 12}};
    StridedMatmulOptions backwards = heads;  // The rows of lhs from the last one on.
    backwards.lhs = {28, 105, 35, -7, 1};
    StridedMatmulOptions transposed = heads;  // Columns of lhs and rhs are their rows.
    transposed.lhs = {0, 105, 35, 1, 5};
    transposed.rhs = {3, 120, 28, 1, 7};
    const std::vector<TensorSpec> specs{f32_spec({2, 3, 5, 7}), f32_spec({2, 7, 19})};
    for (const auto& o : {heads, backwards, transposed})
      d.samples.push_back({.inputs = specs, .options = to_attrs(o), .gradient = false});
    d.samples.push_back({.inputs = {{{2, 3, 5, 7}, f16, {}}, {{2, 7, 19}, f16, {}}},
                         .options = to_attrs(heads),
                         .gradient = false});
    StridedMatmulOptions columns = heads;  // Columns of the result are far apart.
    columns.out = {0, 60, 20, 1, 5};
    columns.shape = {2, 3, 4, 5};
    d.samples.push_back({.inputs = specs, .options = to_attrs(columns), .gradient = false});
    const auto wrong = [&](auto change) {
      StridedMatmulOptions o = heads;
      change(o);
      return to_attrs(o);
    };
    using O = StridedMatmulOptions;
    d.must_fail = {{"(C1)", {f32_spec({2, 3, 5, 7}), {{2, 7, 19}, f16, {}}}, to_attrs(heads)},
                   {"(C2)", specs, wrong([](O& o) { o.m = 0; })},
                   {"(C2)", specs, wrong([](O& o) { o.lhs.pop_back(); })},
                   {"(C3)", specs, wrong([](O& o) { o.lhs[0] = 1; })},
                   {"(C3)", specs, wrong([](O& o) { o.rhs[3] = -16; })},
                   {"(C3)", specs, wrong([](O& o) { o.rhs[1] = int64_t{1} << 62; })},
                   {"(C4)", specs, wrong([](O& o) { o.out[2] = 5; })},
                   {"(C4)", specs, wrong([](O& o) {
                      o.shape = {10, 13};
                    })},
                   {"(C4)", specs, wrong([](O& o) {
                      o.shape = {-10, -12};
                    })}};
    return d;
  }();
  return def;
}

bool is_strided_matmul(const OpDef& def) { return def.type == kType; }

std::vector<const OpDef*> strided_matmul_ops() { return {&strided_matmul_def()}; }

}  // namespace sluice::ops
