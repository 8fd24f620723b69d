#include <algorithm>
#include <numeric>

#include "sluice/base/checked.h"
#include "sluice/cpu/gemm/gemm_op.h"
#include "sluice/cpu/kernels/kernel_list.h"
#include "sluice/ops/op.h"

namespace sluice::cpu {
namespace {

// Matrix products. A task computes a block of each product, all of some products, or the products
// at some indices of one axis.
struct Gemm {
  MatrixProducts products;  // In the order of tasks.
  size_t lhs = 0;  // Number of the operand A; B and C follow. With `continues`, operand 0 is C
                   // before the product.
  ProductCut cut;
  int64_t rows_of_task = 0;  // Rows of each product that a task computes; 0: those of `cut`.
  int64_t stride = 0,
          pitch = 0;  // KernelChoice::task_stride and task_pitch of the result, in bytes.
};

bool accumulates(const OpView& op) {
  return op.inputs() == 3 && op.def().type == "MatMulAccumulate";
}

Gemm gemm_of_matmul(const OpView& op) {
  Gemm g;
  g.lhs = accumulates(op) ? 1 : 0;
  const int lhs = static_cast<int>(g.lhs);
  g.products = products_of(ops::matmul_shape(op.input(lhs).shape, op.input(lhs + 1).shape,
                                             op.options<ops::MatmulOptions>()));
  GemmArgs& args = g.products.args;
  args.continues = accumulates(op);
  g.cut = cut_products(args, g.products.count);
  const bool columns = g.cut.grid.col_blocks > 1;
  g.stride = 4 * (columns               ? g.cut.grid.cols
                  : g.cut.by_products() ? g.cut.per_task * args.m * args.n
                                        : g.cut.grid.rows * args.n);
  g.pitch = columns ? args.n * 4 : 0;
  return g;
}

// Reorders the products so that those at one index of batch axis `axis` follow each other.
void sort_by_axis(const std::vector<int64_t>& batch, size_t axis, Gemm& g) {
  int64_t inner = 1;
  for (size_t i = axis + 1; i < batch.size(); ++i) inner *= batch[i];
  std::vector<size_t> order(g.products.c.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const auto index = [&](size_t i) { return static_cast<int64_t>(i) / inner % batch[axis]; };
    return index(a) < index(b);
  });
  for (auto* const offsets : {&g.products.a, &g.products.b, &g.products.c}) {
    std::vector<int64_t> sorted;
    for (const size_t i : order) sorted.push_back((*offsets)[i]);
    *offsets = std::move(sorted);
  }
}

std::optional<Gemm> gemm_of_strided(const OpView& op) {
  constexpr double kWorthwhile = 1 << 16;  // Multiply-adds of a task: about a microsecond.
  const auto o = op.options<ops::StridedMatmulOptions>();
  const ops::StridedMatrices c(o.out);
  auto all = products_of(o);
  if (!all) return std::nullopt;
  Gemm g;
  g.products = *std::move(all);
  g.cut.grid = {o.m, o.n, 1, 1};
  const int64_t products = g.products.count;
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
  g.cut.tasks = ceil_div(size, indices);
  g.cut.per_task = products;
  if (axis < o.batch.size()) {
    sort_by_axis(o.batch, axis, g);
    g.cut.per_task = products / size * indices;
  } else {
    g.rows_of_task = indices;
  }
  if (g.cut.tasks > 1) g.stride = indices * stride * 4;
  return g;
}

std::optional<Gemm> gemm_of(const OpView& op) {
  if (ops::is_strided_matmul(op.def())) return gemm_of_strided(op);
  return gemm_of_matmul(op);
}

void run_block(const Gemm& g, const runtime::KernelBlock& block, int64_t product, int64_t row,
               int64_t rows, int64_t col) {
  std::byte* const* const operands = block.operands + g.lhs;
  const GemmArgs args = g.products.at(product, reinterpret_cast<const float*>(operands[0]),
                                      reinterpret_cast<const float*>(operands[1]),
                                      reinterpret_cast<float*>(operands[2]));
  const int64_t row_end = std::min(args.m, row + rows);
  const int64_t col_end = std::min(args.n, col + g.cut.grid.cols);
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
  const bool cuts_rows = g.rows_of_task > 0;
  const int64_t begin = cuts_rows ? 0 : g.cut.first_product(task);
  const int64_t end = std::min(g.products.count, begin + g.cut.per_task);
  const int64_t row = cuts_rows ? task * g.rows_of_task : g.cut.row(task);
  const int64_t rows = cuts_rows ? g.rows_of_task : g.cut.grid.rows;
  for (int64_t p = begin; p < end; ++p) run_block(g, block, p, row, rows, g.cut.col(task));
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
  choice.tasks = g.cut.tasks;
  choice.workspace_bytes = gemm_workspace_bytes(g.products.args);
  choice.task_stride = {0, 0, g.stride};
  choice.task_pitch = {0, 0, g.pitch};
  if (g.products.args.continues) {
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
