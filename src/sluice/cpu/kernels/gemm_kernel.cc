#include <algorithm>
#include <numeric>

#include "sluice/base/checked.h"
#include "sluice/cpu/gemm/gemm_op.h"
#include "sluice/cpu/kernels/kernel_list.h"
#include "sluice/ops/op.h"
#include "sluice/ops/strided_matrices.h"

namespace sluice::cpu {
namespace {

// Matrix products. A task computes a block of one product, or the products at some indices of one
// axis.
struct Gemm {
  GemmArgs args;
  size_t lhs = 0;  // Number of the operand A; B and C follow. With `args.continues`, operand 0 is C
                   // before the product.
  GemmGrid grid;   // How one product is cut; one block if a task computes several products.
  // Offsets in elements of the matrices of each product, in the order of tasks.
  std::vector<int64_t> a_offset, b_offset, c_offset;
  int64_t per_task = 1;      // Products of a task; all of them if rows_of_task is not 0.
  int64_t rows_of_task = 0;  // Rows of each product that a task computes; 0: those of `grid`.
  int64_t tasks = 1;
  int64_t stride = 0,
          pitch = 0;  // KernelChoice::task_stride and task_pitch of the result, in bytes.
};

bool accumulates(const OpView& op) {
  return op.inputs() == 3 && op.def().type == "MatMulAccumulate";
}

ops::MatmulShape shape_of(const OpView& op) {
  const int lhs = accumulates(op) ? 1 : 0;
  return ops::fold_batch(ops::matmul_shape(op.input(lhs).shape, op.input(lhs + 1).shape,
                                           op.options<ops::MatmulOptions>()));
}

std::vector<int64_t> batch_offsets(const ops::MatrixView& view, const Shape& batch) {
  const ops::BroadcastIndex index(view.batch, batch);
  std::vector<int64_t> offsets;
  for (int64_t b = 0; b < batch.elements(); ++b)
    offsets.push_back(index(b) * view.rows * view.cols);
  return offsets;
}

Gemm gemm_of_matmul(const OpView& op) {
  const ops::MatmulShape s = shape_of(op);
  Gemm g;
  g.args = gemm_args(s);
  g.args.continues = accumulates(op);
  g.lhs = g.args.continues ? 1 : 0;
  const int64_t products = s.batch.elements();
  // With several products, each is a single task.
  g.grid = products == 1 ? one_axis_grid(g.args) : GemmGrid{g.args.m, g.args.n, 1, 1};
  g.a_offset = batch_offsets(s.lhs, s.batch);
  g.b_offset = batch_offsets(s.rhs, s.batch);
  for (int64_t b = 0; b < products; ++b) g.c_offset.push_back(b * s.m * s.n);
  g.tasks = products * g.grid.tasks();
  const bool columns = g.grid.col_blocks > 1;
  g.stride = columns ? g.grid.cols * 4 : g.grid.rows * s.n * 4;
  g.pitch = columns ? s.n * 4 : 0;
  return g;
}

// Sets the leading dimension of a matrix of rows × cols; false if gemm() cannot read it.
bool set_leading(int64_t rows, int64_t cols, const ops::StridedMatrices& s, bool& transposed,
                 int64_t& leading) {
  transposed = s.col != 1 && cols > 1;
  if (transposed && s.row != 1 && rows > 1) return false;
  const int64_t steps = transposed ? cols : rows;
  leading = steps == 1 ? std::max(rows, cols) : transposed ? s.col : s.row;
  return leading >= 1;
}

// Reorders the products so that those at one index of batch axis `axis` follow each other.
void sort_by_axis(const std::vector<int64_t>& batch, size_t axis, Gemm& g) {
  int64_t inner = 1;
  for (size_t i = axis + 1; i < batch.size(); ++i) inner *= batch[i];
  std::vector<size_t> order(g.c_offset.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const auto index = [&](size_t i) { return static_cast<int64_t>(i) / inner % batch[axis]; };
    return index(a) < index(b);
  });
  for (auto* const offsets : {&g.a_offset, &g.b_offset, &g.c_offset}) {
    std::vector<int64_t> sorted;
    for (const size_t i : order) sorted.push_back((*offsets)[i]);
    *offsets = std::move(sorted);
  }
}

std::optional<Gemm> gemm_of_strided(const OpView& op) {
  constexpr double kWorthwhile = 1 << 16;  // Multiply-adds of a task: about a microsecond.
  const auto o = op.options<ops::StridedMatmulOptions>();
  const ops::StridedMatrices a(o.lhs), b(o.rhs), c(o.out);
  Gemm g;
  g.args.m = o.m;
  g.args.n = o.n;
  g.args.k = o.k;
  g.args.ldc = o.m == 1 ? o.n : c.row;
  if (!set_leading(o.m, o.k, a, g.args.trans_a, g.args.lda) ||
      !set_leading(o.k, o.n, b, g.args.trans_b, g.args.ldb) || (c.col != 1 && o.n > 1))
    return std::nullopt;
  g.grid = {o.m, o.n, 1, 1};
  g.a_offset = a.offsets(o.batch);
  g.b_offset = b.offsets(o.batch);
  g.c_offset = c.offsets(o.batch);
  const auto products = static_cast<int64_t>(g.c_offset.size());
  // The outermost axis of the result in memory: a task writes a contiguous part of it.
  int64_t stride = o.m > 1 ? c.row : 0, size = o.m;
  size_t axis = o.batch.size();
  for (size_t i = 0; i < o.batch.size(); ++i) {
    if (o.batch[i] == 1 || c.batch[i] < stride) continue;
    stride = c.batch[i];
    size = o.batch[i];
    axis = i;
  }
  const double work = static_cast<double>(o.m) * static_cast<double>(o.n) *
                      static_cast<double>(o.k) * static_cast<double>(products);
  const int64_t max = std::clamp<int64_t>(static_cast<int64_t>(std::min(work / kWorthwhile, 1e9)),
                                          1, kMaxGemmTasks);
  const int64_t indices = ceil_div(size, std::min(max, size));  // Indices of the axis in a task.
  g.tasks = ceil_div(size, indices);
  g.per_task = products;
  if (axis < o.batch.size()) {
    sort_by_axis(o.batch, axis, g);
    g.per_task = products / size * indices;
  } else {
    g.rows_of_task = indices;
  }
  if (g.tasks > 1) g.stride = indices * stride * 4;
  return g;
}

std::optional<Gemm> gemm_of(const OpView& op) {
  if (ops::is_strided_matmul(op.def())) return gemm_of_strided(op);
  return gemm_of_matmul(op);
}

void run_block(const Gemm& g, const runtime::KernelBlock& block, size_t product, int64_t row,
               int64_t rows, int64_t col) {
  GemmArgs args = g.args;
  std::byte* const* const operands = block.operands + g.lhs;
  args.a = reinterpret_cast<const float*>(operands[0]) + g.a_offset.data()[product];
  args.b = reinterpret_cast<const float*>(operands[1]) + g.b_offset.data()[product];
  args.c = reinterpret_cast<float*>(operands[2]) + g.c_offset.data()[product];
  const int64_t row_end = std::min(args.m, row + rows);
  const int64_t col_end = std::min(args.n, col + g.grid.cols);
  if (args.continues && block.operands[0] != operands[2]) {
    const auto* const before = reinterpret_cast<const float*>(block.operands[0]);
    for (int64_t r = row; r < row_end; ++r)
      std::copy(before + r * args.ldc + col, before + r * args.ldc + col_end,
                args.c + r * args.ldc + col);
  }
  gemm(args, row, row_end, col, col_end, reinterpret_cast<float*>(block.workspace));
}

void run_gemm(const void* state, const runtime::KernelBlock& block, int64_t task) {
  const auto& g = *static_cast<const Gemm*>(state);
  const int64_t blocks = g.grid.tasks();
  if (blocks > 1) {
    const int64_t tile = task % blocks;
    return run_block(g, block, static_cast<size_t>(task / blocks),
                     tile / g.grid.col_blocks * g.grid.rows, g.grid.rows,
                     tile % g.grid.col_blocks * g.grid.cols);
  }
  const bool cuts_rows = g.rows_of_task > 0;
  const auto products = static_cast<int64_t>(g.c_offset.size());
  const int64_t begin = cuts_rows ? 0 : task * g.per_task;
  const int64_t end = std::min(products, begin + g.per_task);
  const int64_t row = cuts_rows ? task * g.rows_of_task : 0;
  const int64_t rows = cuts_rows ? g.rows_of_task : g.args.m;
  for (int64_t p = begin; p < end; ++p) run_block(g, block, static_cast<size_t>(p), row, rows, 0);
}

bool supports_gemm(const OpView& op) {
  const bool strided = ops::is_strided_matmul(op.def());
  if (!strided && &op.def() != &ops::matmul_def() && !accumulates(op)) return false;
  for (int i = 0; i < op.inputs(); ++i) {
    if (op.input(i).dtype != f32) return false;
  }
  return op.output(0).dtype == f32 && op.output(0).elements() > 0 &&
         (!strided || gemm_of_strided(op));
}

KernelChoice choose_gemm(const OpView& op) {
  const Gemm g = *gemm_of(op);
  KernelChoice choice;
  choice.tasks = g.tasks;
  choice.workspace_bytes = gemm_workspace_bytes(g.args);
  choice.task_stride = {0, 0, g.stride};
  choice.task_pitch = {0, 0, g.pitch};
  if (g.args.continues) {
    choice.task_stride.insert(choice.task_stride.begin(), g.stride);
    choice.task_pitch.insert(choice.task_pitch.begin(), g.pitch);
  }
  return choice;
}

}  // namespace

CpuKernel gemm_kernel() {
  return {"cpu.gemm", supports_gemm, choose_gemm, [](std::shared_ptr<const OpRecord> op) {
            return runtime::BoundKernel{run_gemm, std::make_shared<Gemm>(*gemm_of(op->view()))};
          }};
}

}  // namespace sluice::cpu
