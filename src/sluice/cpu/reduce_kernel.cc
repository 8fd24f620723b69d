#include <algorithm>
#include <optional>

#include "sluice/base/checked.h"
#include "sluice/cpu/kernel_list.h"
#include "sluice/cpu/reduce.h"
#include "sluice/ops/reductions.h"
#include "sluice/ops/softmax.h"

namespace sluice::cpu {
namespace {

constexpr int64_t kMostTasks = 16;
constexpr int64_t kTaskElements = 4096;

std::optional<ReduceOp> reduce_op(const OpDef& def) {
  const std::pair<const OpDef*, ReduceOp> table[] = {
      {&ops::reduce_sum_def(), ReduceOp::kSum},
      {&ops::reduce_mean_def(), ReduceOp::kMean},
      {&ops::reduce_max_def(), ReduceOp::kMax},
      {&ops::reduce_min_def(), ReduceOp::kMin},
      {&ops::reduce_prod_def(), ReduceOp::kProd},
      {&ops::reduce_l1_def(), ReduceOp::kL1},
      {&ops::reduce_l2_def(), ReduceOp::kL2},
      {&ops::reduce_sum_square_def(), ReduceOp::kSumSquare}};
  for (const auto& [d, op] : table) {
    if (d == &def) return op;
  }
  return std::nullopt;
}

// The operand as a matrix one of whose sides is reduced.
struct Reduce {
  ReduceOp op = ReduceOp::kSum;
  bool columns = false;  // Sums of columns; else of rows.
  int64_t extent = 1;    // Elements that make a result.
  int64_t results = 1;
  int64_t per_task = 1;
};

bool matrix_of(const OpView& view, Reduce& r) {
  const auto op = reduce_op(view.def());
  if (!op || view.input(0).dtype != f32 || view.output(0).dtype != f32) return false;
  r.op = *op;
  const Shape& in = view.input(0).shape;
  std::vector<bool> reduced(static_cast<size_t>(in.rank()), false);
  const auto options = view.options<ops::ReduceOptions>();
  if (options.axes.empty()) reduced.assign(reduced.size(), true);
  for (const int64_t axis : options.axes)
    reduced[static_cast<size_t>(normalize_axis(axis, in.rank(), "reduce"))] = true;
  // Axes of size 1 may count as either.
  int changes = 0;
  std::optional<bool> previous;
  bool first = false;
  for (int i = 0; i < in.rank(); ++i) {
    (reduced[static_cast<size_t>(i)] ? r.extent : r.results) *= in[i];
    if (in[i] == 1) continue;
    if (!previous) first = reduced[static_cast<size_t>(i)];
    if (previous && *previous != reduced[static_cast<size_t>(i)]) ++changes;
    previous = reduced[static_cast<size_t>(i)];
  }
  r.columns = first && changes == 1;
  const int64_t most = std::max<int64_t>(1, kTaskElements / std::max<int64_t>(1, r.extent));
  r.per_task = std::max(round_up(most, 16), round_up(ceil_div(r.results, kMostTasks), 16));
  return changes <= 1 && r.results > 0;
}

void run_reduce(const void* state, const runtime::KernelBlock& block, int64_t task) {
  const auto& r = *static_cast<const Reduce*>(state);
  const int64_t begin = task * r.per_task;
  const int64_t count = std::min(r.per_task, r.results - begin);
  const auto* x = reinterpret_cast<const float*>(block.operands[0]);
  auto* y = reinterpret_cast<float*>(block.operands[1]) + begin;
  if (r.columns) {
    reduce_columns(r.op, x + begin, r.extent, count, r.results, y);
  } else {
    reduce_rows(r.op, x + begin * r.extent, count, r.extent, r.extent, y);
  }
}

KernelChoice choose_reduce(const OpView& op) {
  Reduce r;
  matrix_of(op, r);
  KernelChoice choice;
  choice.tasks = ceil_div(r.results, r.per_task);
  choice.task_stride = {0, r.per_task * 4};
  return choice;
}

enum class RowOp { kSoftmax, kLogSoftmax, kSoftmaxGrad, kLogSoftmaxGrad };

struct SoftmaxRows {
  RowOp op = RowOp::kSoftmax;
  int64_t rows = 1;
  int64_t n = 1;
  int64_t per_task = 1;
};

std::optional<RowOp> row_op(const OpDef& def) {
  if (&def == &ops::softmax_def()) return RowOp::kSoftmax;
  if (&def == &ops::log_softmax_def()) return RowOp::kLogSoftmax;
  if (&def == &ops::softmax_grad_def()) return RowOp::kSoftmaxGrad;
  if (&def == &ops::log_softmax_grad_def()) return RowOp::kLogSoftmaxGrad;
  return std::nullopt;
}

bool rows_of(const OpView& view, SoftmaxRows& s) {
  const auto op = row_op(view.def());
  if (!op || view.input(0).dtype != f32) return false;
  const Shape& shape = view.input(0).shape;
  const int axis = normalize_axis(view.options<ops::AxisOptions>().axis, shape.rank(), "softmax");
  if (axis != shape.rank() - 1 || shape.elements() == 0) return false;
  s.op = *op;
  s.n = shape[axis];
  s.rows = shape.elements() / s.n;
  s.per_task = std::max<int64_t>({1, kTaskElements / s.n, ceil_div(s.rows, kMostTasks)});
  return true;
}

void run_softmax(const void* state, const runtime::KernelBlock& block, int64_t task) {
  const auto& s = *static_cast<const SoftmaxRows*>(state);
  const int64_t begin = task * s.per_task;
  const int64_t rows = std::min(s.per_task, s.rows - begin);
  const auto* a = reinterpret_cast<const float*>(block.operands[0]) + begin * s.n;
  switch (s.op) {
    case RowOp::kSoftmax:
      return softmax_rows(a, rows, s.n, reinterpret_cast<float*>(block.operands[1]) + begin * s.n);
    case RowOp::kLogSoftmax:
      return log_softmax_rows(a, rows, s.n,
                              reinterpret_cast<float*>(block.operands[1]) + begin * s.n);
    case RowOp::kSoftmaxGrad:
    case RowOp::kLogSoftmaxGrad:
      break;
  }
  const auto* b = reinterpret_cast<const float*>(block.operands[1]) + begin * s.n;
  auto* out = reinterpret_cast<float*>(block.operands[2]) + begin * s.n;
  if (s.op == RowOp::kSoftmaxGrad) return softmax_grad_rows(a, b, rows, s.n, out);
  log_softmax_grad_rows(a, b, rows, s.n, out);
}

KernelChoice choose_softmax(const OpView& op) {
  SoftmaxRows s;
  rows_of(op, s);
  KernelChoice choice;
  choice.tasks = ceil_div(s.rows, s.per_task);
  choice.task_stride.assign(static_cast<size_t>(op.inputs()) + 1, s.per_task * s.n * 4);
  return choice;
}

}  // namespace

CpuKernel reduce_kernel() {
  return {"cpu.reduce",
          [](const OpView& op) {
            Reduce r;
            return matrix_of(op, r);
          },
          choose_reduce,
          [](std::shared_ptr<const OpRecord> op) {
            auto state = std::make_shared<Reduce>();
            matrix_of(op->view(), *state);
            return runtime::BoundKernel{run_reduce, state, flops_of(op->view())};
          }};
}

CpuKernel softmax_kernel() {
  return {"cpu.softmax",
          [](const OpView& op) {
            SoftmaxRows s;
            return rows_of(op, s);
          },
          choose_softmax,
          [](std::shared_ptr<const OpRecord> op) {
            auto state = std::make_shared<SoftmaxRows>();
            rows_of(op->view(), *state);
            return runtime::BoundKernel{run_softmax, state, flops_of(op->view())};
          }};
}

}  // namespace sluice::cpu
