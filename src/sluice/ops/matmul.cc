#include "sluice/ops/matmul.h"

#include <algorithm>
#include <cmath>

#include "sluice/ops/cast.h"
#include "sluice/ops/reshape.h"
#include "sluice/ops/rules.h"

namespace sluice::ops {
namespace {

enum class Side { kLhs, kRhs };

MatrixView view_of(const Shape& shape, bool transposed, Side side) {
  MatrixView v;
  if (shape.rank() == 1) {
    (side == Side::kLhs ? v.cols : v.rows) = shape[0];
    v.row_stride = side == Side::kLhs ? shape[0] : 1;
    return v;
  }
  v.batch = Shape(std::vector<int64_t>(shape.begin(), shape.end() - 2));
  v.rows = shape.dim(-2);
  v.cols = shape.dim(-1);
  v.row_stride = v.cols;
  if (transposed) {
    std::swap(v.rows, v.cols);
    std::swap(v.row_stride, v.col_stride);
  }
  return v;
}

Shape with_matrix(const Shape& batch, int64_t rows, int64_t cols) {
  std::vector<int64_t> dims = batch.dims();
  dims.push_back(rows);
  dims.push_back(cols);
  return Shape(std::move(dims));
}

std::vector<TensorSpec> infer_matmul(const OpView& op) {
  require_float(op.input(0), "matmul (C1): lhs");
  require(op.input(0).dtype == op.input(1).dtype,
          "matmul (C1): rhs must have the dtype of lhs, {}, got {}; cast one",
          name_of(op.input(0).dtype), to_string(op.input(1)));
  const MatmulShape s =
      matmul_shape(op.input(0).shape, op.input(1).shape, op.options<MatmulOptions>());
  return {{s.out, op.input(0).dtype, {}}};
}

// With A (m x k), B (k x n) and the gradient G of A·B: dA = G Bᵀ, dB = Aᵀ G. The gradient of a
// transposed operand is the transpose of this matrix.
Tensor lhs_gradient(const Tensor& out, const Tensor& b, const MatmulOptions& o) {
  return o.lhs_transposed
             ? matmul(b, out, {.lhs_transposed = o.rhs_transposed, .rhs_transposed = true})
             : matmul(out, b, {.rhs_transposed = !o.rhs_transposed});
}

Tensor rhs_gradient(const Tensor& a, const Tensor& out, const MatmulOptions& o) {
  return o.rhs_transposed
             ? matmul(out, a, {.lhs_transposed = true, .rhs_transposed = o.lhs_transposed})
             : matmul(a, out, {.lhs_transposed = !o.lhs_transposed});
}

Tensors grad_matmul(GradContext& g) {
  const auto o = g.options<MatmulOptions>();
  const Shape& lhs = g.op().input(0).shape;
  const Shape& rhs = g.op().input(1).shape;
  const MatmulShape s = matmul_shape(lhs, rhs, o);
  const auto as = [](const Tensor& t, const Shape& shape) {
    return t.shape() == shape ? t : reshape(t, shape);
  };
  const Shape lhs_matrix = lhs.rank() == 1 ? Shape{1, s.k} : lhs;
  const Shape rhs_matrix = rhs.rank() == 1 ? Shape{s.k, 1} : rhs;
  const Tensor out = as(g.grad(0), with_matrix(s.batch, s.m, s.n));
  Tensors result(2);
  if (g.needs(0)) {
    const Tensor d = lhs_gradient(out, as(g.input(1), rhs_matrix), o);
    result[0] = as(reduce_to(d, lhs_matrix), lhs);
  }
  if (g.needs(1)) {
    Tensor a = as(g.input(0), lhs_matrix);
    Tensor out_rows = out;
    if (rhs_matrix.rank() == 2 && lhs_matrix.rank() > 2 && !o.lhs_transposed) {
      // Compute one product over all rows of the batch, instead of one per matrix and a sum.
      const int64_t rows = s.batch.elements() * s.m;
      a = reshape(a, {rows, s.k});
      out_rows = reshape(out, {rows, s.n});
    }
    result[1] = as(reduce_to(rhs_gradient(a, out_rows, o), rhs_matrix), rhs);
  }
  return result;
}

// Continues the chains of a matrix of results: out += x·y. The loop over k is outside: each element
// still sums in ascending k, and the rows of y are read in order.
template <typename T>
void continue_chains(const MatmulShape& s, const T* x, const T* y, T* out) {
  for (int64_t i = 0; i < s.m; ++i, out += s.n) {
    for (int64_t k = 0; k < s.k; ++k) {
      const T p = x[i * s.lhs.row_stride + k * s.lhs.col_stride];
      for (int64_t j = 0; j < s.n; ++j) {
        const T q = y[k * s.rhs.row_stride + j * s.rhs.col_stride];
        if constexpr (std::is_same_v<T, float>) {
          out[j] = std::fma(p, q, out[j]);
        } else {
          out[j] += p * q;
        }
      }
    }
  }
}

template <typename T>
void reference_matmul(const KernelArgs& args) {
  const MatmulShape s =
      matmul_shape(args.in_shape(0), args.in_shape(1), args.options<MatmulOptions>());
  const BroadcastIndex lhs_batch(s.lhs.batch, s.batch);
  const BroadcastIndex rhs_batch(s.rhs.batch, s.batch);
  const T* lhs = args.in<T>(0).data();
  const T* rhs = args.in<T>(1).data();
  T* out = args.out<T>(0).data();
  for (int64_t b = 0; b < s.batch.elements(); ++b, out += s.m * s.n) {
    std::fill_n(out, s.m * s.n, T{0});
    continue_chains(s, lhs + lhs_batch(b) * s.m * s.k, rhs + rhs_batch(b) * s.k * s.n, out);
  }
}

double matmul_flops(const OpView& op) {
  const MatmulShape s =
      matmul_shape(op.input(0).shape, op.input(1).shape, op.options<MatmulOptions>());
  return 2.0 * static_cast<double>(s.batch.elements()) * static_cast<double>(s.m) *
         static_cast<double>(s.n) * static_cast<double>(s.k);
}

std::vector<TensorSpec> infer_matmul_accumulate(const OpView& op) {
  const TensorSpec &acc = op.input(0), &lhs = op.input(1), &rhs = op.input(2);
  const auto o = op.options<MatmulOptions>();
  require(acc.dtype == f32, "matmul_accumulate_ (C1): acc must be float32, got {}", to_string(acc));
  require_float(lhs, "matmul_accumulate_ (C2): lhs");
  require(lhs.dtype == rhs.dtype,
          "matmul_accumulate_ (C2): rhs must have the dtype of lhs, {}, got {}; cast one",
          name_of(lhs.dtype), to_string(rhs));
  require(lhs.shape.rank() == 2 && rhs.shape.rank() == 2,
          "matmul_accumulate_ (C3): lhs and rhs must be matrices, got {} and {}", to_string(lhs),
          to_string(rhs));
  const int64_t k = lhs.shape[o.lhs_transposed ? 0 : 1];
  require(rhs.shape[o.rhs_transposed ? 1 : 0] == k,
          "matmul_accumulate_ (C4): rhs must have the inner size of lhs, {}, got {}{}", k,
          to_string(rhs), o.rhs_transposed ? " transposed" : "");
  const Shape product = matmul_shape(lhs.shape, rhs.shape, o).out;
  require(acc.shape == product, "matmul_accumulate_ (C5): acc must have shape {}, got {}",
          to_string(product), to_string(acc));
  return {acc};
}

// The gradient of acc is the gradient itself; lhs and rhs have the gradients of a product.
Tensors grad_matmul_accumulate(GradContext& g) {
  const auto o = g.options<MatmulOptions>();
  Tensors result(3);
  result[0] = g.grad(0);
  if (!g.needs(1) && !g.needs(2)) return result;
  const Tensor out = cast(g.grad(0), g.op().input(1).dtype);
  if (g.needs(1)) result[1] = lhs_gradient(out, g.input(2), o);
  if (g.needs(2)) result[2] = rhs_gradient(g.input(1), out, o);
  return result;
}

template <typename T>
void reference_matmul_accumulate(const KernelArgs& args) {
  const auto before = args.in<T>(0);
  T* const acc = args.out<T>(0).data();
  if (before.data() != acc) std::copy(before.begin(), before.end(), acc);
  continue_chains(matmul_shape(args.in_shape(1), args.in_shape(2), args.options<MatmulOptions>()),
                  args.in<T>(1).data(), args.in<T>(2).data(), acc);
}

double matmul_accumulate_flops(const OpView& op) {
  const bool transposed = op.options<MatmulOptions>().lhs_transposed;
  return 2.0 * static_cast<double>(op.input(0).elements()) *
         static_cast<double>(op.input(1).shape[transposed ? 0 : 1]);
}

}  // namespace

MatmulShape matmul_shape(const Shape& lhs, const Shape& rhs, const MatmulOptions& options) {
  // The compiler calls this function several times for each kernel, so only an error formats text.
  if (lhs.rank() < 1 || rhs.rank() < 1)
    fail(ErrorKind::kUsage, "matmul (C2): operands {} and {} must not be scalars", to_string(lhs),
         to_string(rhs));
  if ((options.lhs_transposed && lhs.rank() == 1) || (options.rhs_transposed && rhs.rank() == 1))
    fail(ErrorKind::kUsage, "matmul (C3): operands {} and {}: a vector cannot be transposed",
         to_string(lhs), to_string(rhs));
  MatmulShape s;
  s.lhs = view_of(lhs, options.lhs_transposed, Side::kLhs);
  s.rhs = view_of(rhs, options.rhs_transposed, Side::kRhs);
  s.m = s.lhs.rows;
  s.k = s.lhs.cols;
  s.n = s.rhs.cols;
  if (s.k != s.rhs.rows)
    fail(ErrorKind::kUsage, "matmul (C4): {}{} x {}{}: inner sizes {} and {} differ",
         to_string(lhs), options.lhs_transposed ? " transposed" : "", to_string(rhs),
         options.rhs_transposed ? " transposed" : "", s.k, s.rhs.rows);
  s.batch = broadcast(s.lhs.batch, s.rhs.batch, "matmul (C5): batch axes");
  std::vector<int64_t> out = s.batch.dims();
  if (lhs.rank() > 1) out.push_back(s.m);
  if (rhs.rank() > 1) out.push_back(s.n);
  s.out = Shape(std::move(out));
  return s;
}

MatmulShape fold_batch(MatmulShape s) {
  const int64_t matrices = s.batch.elements();
  const bool rows_follow = s.lhs.col_stride == 1 && s.lhs.row_stride == s.lhs.cols;
  if (matrices < 2 || !rows_follow || s.rhs.batch.elements() != 1 ||
      s.lhs.batch.elements() != matrices)
    return s;
  s.m *= matrices;
  s.lhs.rows = s.m;
  s.batch = s.lhs.batch = s.rhs.batch = {};
  return s;
}

const OpDef& matmul_def() {
  static const OpDef def = [] {
    OpDef d;
    d.type = "MatMul";
    d.name = "matmul";
    d.doc =
        "Matrix product as numpy.matmul, of operands optionally transposed over their last two "
        "axes. In float32 each "
        "element is one chain of fused multiply-adds in ascending k, from zero. (C1) Both operands "
        "have the same "
        "floating dtype. (C2) No operand is a scalar. (C3) A transposed operand has at least two "
        "axes. (C4) The inner "
        "sizes are equal. (C5) The batch axes broadcast.";
    d.inputs = {{"lhs"}, {"rhs"}};
    d.outputs = {"y"};
    d.set_options(MatmulOptions{});
    d.infer = infer_matmul;
    d.grad = grad_matmul;
    d.reference_float = reference_matmul<float>;
    d.reference_double = reference_matmul<double>;
    d.flops = matmul_flops;
    const auto flags = [](bool lhs, bool rhs) {
      return to_attrs(MatmulOptions{.lhs_transposed = lhs, .rhs_transposed = rhs});
    };
    d.samples = {{.inputs = {f32_spec({2, 3}), f32_spec({3, 4})}},
                 {.inputs = {f32_spec({17, 33}), f32_spec({33, 19})}, .gradient = false},
                 {.inputs = {f32_spec({3, 2}), f32_spec({3, 4})}, .options = flags(true, false)},
                 {.inputs = {f32_spec({2, 3}), f32_spec({4, 3})}, .options = flags(false, true)},
                 {.inputs = {f32_spec({3, 2}), f32_spec({4, 3})}, .options = flags(true, true)},
                 {.inputs = {f32_spec({3}), f32_spec({3})}},
                 {.inputs = {f32_spec({3}), f32_spec({3, 2})}},
                 {.inputs = {f32_spec({2, 3}), f32_spec({3})}},
                 {.inputs = {f32_spec({3}), f32_spec({2, 4, 3})}, .options = flags(false, true)},
                 {.inputs = {f32_spec({4, 3, 2}), f32_spec({3})}, .options = flags(true, false)},
                 {.inputs = {f32_spec({5, 2, 3}), f32_spec({3, 4})}},
                 {.inputs = {f32_spec({5, 2, 3}), f32_spec({4, 3})}, .options = flags(false, true)},
                 {.inputs = {f32_spec({5, 3, 2}), f32_spec({4, 3})}, .options = flags(true, true)},
                 {.inputs = {f32_spec({2, 3}), f32_spec({5, 3, 4})}},
                 {.inputs = {f32_spec({2, 1, 2, 3}), f32_spec({5, 3, 2})}},
                 {.inputs = {f32_spec({2, 0}), f32_spec({0, 3})}, .gradient = false},
                 {.inputs = {{{4, 3}, f16, {}}, {{3, 5}, f16, {}}}, .gradient = false}};
    d.must_fail = {{"(C1)", {i32_spec({2, 2}), i32_spec({2, 2})}},
                   {"(C1)", {f32_spec({2, 2}), {{2, 2}, f16, {}}}},
                   {"(C2)", {f32_spec({}), f32_spec({2})}},
                   {"(C3)", {f32_spec({2}), f32_spec({2, 2})}, flags(true, false)},
                   {"(C4)", {f32_spec({2, 3}), f32_spec({4, 2})}},
                   {"(C5)", {f32_spec({2, 2, 3}), f32_spec({3, 3, 2})}}};
    return d;
  }();
  return def;
}

const OpDef& matmul_accumulate_def() {
  static const OpDef def = [] {
    OpDef d;
    d.type = "MatMulAccumulate";
    d.name = "matmul_accumulate_";
    d.doc =
        "acc = acc + lhs·rhs of matrices that are optionally transposed, in acc's storage. In "
        "float32 each element continues as a chain of fused multiply-adds in ascending k, so "
        "products of consecutive parts of k have the bits of one product. (C1) acc is float32. "
        "(C2) lhs and rhs have one floating dtype. (C3) They have two axes. (C4) The inner sizes "
        "are equal. (C5) acc has the shape of the product.";
    d.inputs = {{"acc", Mode::kUpdate}, {"lhs"}, {"rhs"}};
    d.outputs = {"y"};
    d.aliases = {{0, 0}};
    d.set_options(MatmulOptions{});
    d.infer = infer_matmul_accumulate;
    d.grad = grad_matmul_accumulate;
    d.reference_float = reference_matmul_accumulate<float>;
    d.reference_double = reference_matmul_accumulate<double>;
    d.flops = matmul_accumulate_flops;
    const auto sample = [](const Shape& acc, const Shape& lhs, const Shape& rhs,
                           const MatmulOptions& o = {}, DType dtype = f32) {
      return Sample{.inputs = {f32_spec(acc), {lhs, dtype, {}}, {rhs, dtype, {}}},
                    .options = to_attrs(o),
                    .gradient = dtype == f32 && lhs.elements() > 0};
    };
    const MatmulOptions first{.lhs_transposed = true}, second{.rhs_transposed = true};
    const MatmulOptions both{.lhs_transposed = true, .rhs_transposed = true};
    d.samples = {sample({2, 4}, {2, 3}, {3, 4}),
                 sample({2, 4}, {3, 2}, {3, 4}, first),
                 sample({2, 4}, {2, 3}, {4, 3}, second),
                 sample({2, 4}, {3, 2}, {4, 3}, both),
                 sample({17, 19}, {33, 17}, {33, 19}, first),
                 sample({2, 3}, {2, 0}, {0, 3}),
                 sample({4, 5}, {4, 3}, {3, 5}, {}, f16)};
    const TensorSpec acc = f32_spec({2, 4}), lhs = f32_spec({2, 3}), rhs = f32_spec({3, 4});
    d.must_fail = {{"(C1)", {{{2, 4}, f16, {}}, lhs, rhs}},
                   {"(C2)", {acc, i32_spec({2, 3}), i32_spec({3, 4})}},
                   {"(C2)", {acc, lhs, {{3, 4}, f16, {}}}},
                   {"(C3)", {acc, lhs, f32_spec({1, 3, 4})}},
                   {"(C4)", {acc, lhs, f32_spec({4, 4})}},
                   {"(C4)", {acc, lhs, rhs}, to_attrs(second)},
                   {"(C5)", {f32_spec({4, 2}), lhs, rhs}},
                   {"(C5)", {f32_spec({4}), lhs, rhs}}};
    return d;
  }();
  return def;
}

Tensor matmul(TensorArg lhs, TensorArg rhs, const MatmulOptions& options) {
  return emit_one(matmul_def(), {lhs, rhs}, options);
}

Tensor matmul_accumulate_(TensorArg acc, TensorArg lhs, TensorArg rhs,
                          const MatmulOptions& options) {
  return emit_one(matmul_accumulate_def(), {acc, lhs, rhs}, options);
}

std::vector<const OpDef*> matmul_ops() { return {&matmul_def(), &matmul_accumulate_def()}; }

}  // namespace sluice::ops
