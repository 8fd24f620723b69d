#include <algorithm>
#include <optional>

#include "sluice/base/checked.h"
#include "sluice/cpu/conversions.h"
#include "sluice/cpu/kernel_list.h"
#include "sluice/cpu/reduce_view.h"
#include "sluice/ops/softmax.h"

namespace sluice::cpu {
namespace {

constexpr int64_t kMostTasks = 16;
constexpr int64_t kTaskElements = 4096;
constexpr int64_t kBlock = 1024;  // Floats on their way from or to narrower elements.

struct Reduce {
  ReduceView view;
  int64_t per_task = 1;
  DType from = f32;
  DType to = f32;
  NarrowFn narrow = nullptr;  // None for f32.
};

bool matrix_of(const OpView& op, Reduce& r) {
  const auto view = reduce_view(op);
  if (!view || !computes_in_f32(op.input(0).dtype) || !computes_in_f32(op.output(0).dtype))
    return false;
  r.view = *view;
  r.from = op.input(0).dtype;
  r.to = op.output(0).dtype;
  if (r.to != f32) r.narrow = narrow_kernel(r.to);
  const int64_t most = std::max<int64_t>(1, kTaskElements / std::max<int64_t>(1, view->extent));
  r.per_task = std::max(round_up(most, 16), round_up(ceil_div(view->results, kMostTasks), 16));
  return true;
}

void reduce(const Reduce& r, FloatArray x, int64_t begin, int64_t count, float* y) {
  const ReduceView& v = r.view;
  if (v.columns) {
    reduce_columns(v.op, x.from(begin), v.extent, count, v.results, y);
  } else {
    reduce_rows(v.op, x.from(begin * v.extent), count, v.extent, v.extent, y);
  }
}

void run_reduce(const void* state, const runtime::KernelBlock& block, int64_t task) {
  const auto& r = *static_cast<const Reduce*>(state);
  int64_t begin = task * r.per_task;
  const int64_t end = std::min(r.view.results, begin + r.per_task);
  const FloatArray x(block.operands[0], r.from);
  std::byte* const y = block.operands[1];
  if (r.narrow == nullptr)
    return reduce(r, x, begin, end - begin, reinterpret_cast<float*>(y) + begin);
  float floats[kBlock];
  for (; begin < end; begin += kBlock) {
    const int64_t count = std::min(kBlock, end - begin);
    reduce(r, x, begin, count, floats);
    r.narrow(floats, y + begin * size_of(r.to), count);
  }
}

KernelChoice choose_reduce(const OpView& op) {
  Reduce r;
  matrix_of(op, r);
  KernelChoice choice;
  choice.tasks = ceil_div(r.view.results, r.per_task);
  choice.task_stride = {0, r.per_task * size_of(r.to)};
  return choice;
}

enum class RowOp { kSoftmax, kLogSoftmax, kSoftmaxGrad, kLogSoftmaxGrad };

struct SoftmaxRows {
  RowOp op = RowOp::kSoftmax;
  int64_t rows = 1;
  int64_t n = 1;
  int64_t per_task = 1;
  int inputs = 1;
  DType dtype = f32;
  int64_t rows_at_once = 0;  // Widened into the workspace, where the dtype is not f32.
  WidenFn widen = nullptr;
  NarrowFn narrow = nullptr;
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
  if (!op || !computes_in_f32(view.input(0).dtype)) return false;
  const Shape& shape = view.input(0).shape;
  const int axis = normalize_axis(view.options<ops::AxisOptions>().axis, shape.rank(), "softmax");
  if (axis != shape.rank() - 1 || shape.elements() == 0) return false;
  s.op = *op;
  s.n = shape[axis];
  s.rows = shape.elements() / s.n;
  s.per_task = std::max<int64_t>({1, kTaskElements / s.n, ceil_div(s.rows, kMostTasks)});
  s.inputs = view.inputs();
  s.dtype = view.input(0).dtype;
  if (s.dtype == f32) return true;
  s.rows_at_once = std::max<int64_t>(1, kBlock / s.n);
  s.widen = widen_kernel(s.dtype);
  s.narrow = narrow_kernel(s.dtype);
  return true;
}

void compute(const SoftmaxRows& s, const float* a, const float* b, int64_t rows, float* out) {
  switch (s.op) {
    case RowOp::kSoftmax:
      return softmax_rows(a, rows, s.n, out);
    case RowOp::kLogSoftmax:
      return log_softmax_rows(a, rows, s.n, out);
    case RowOp::kSoftmaxGrad:
      return softmax_grad_rows(a, b, rows, s.n, out);
    case RowOp::kLogSoftmaxGrad:
      return log_softmax_grad_rows(a, b, rows, s.n, out);
  }
}

void run_softmax(const void* state, const runtime::KernelBlock& block, int64_t task) {
  const auto& s = *static_cast<const SoftmaxRows*>(state);
  const int64_t begin = task * s.per_task;
  const int64_t rows = std::min(s.per_task, s.rows - begin);
  const int64_t row_bytes = s.n * size_of(s.dtype);
  const auto operand = [&](int i, int64_t row) { return block.operands[i] + row * row_bytes; };
  if (s.dtype == f32) {
    const auto floats = [&](int i) { return reinterpret_cast<float*>(operand(i, begin)); };
    return compute(s, floats(0), floats(s.inputs - 1), rows, floats(s.inputs));
  }
  float* const a = reinterpret_cast<float*>(block.workspace);
  float* const b = s.inputs > 1 ? a + s.rows_at_once * s.n : nullptr;
  for (int64_t row = begin; row < begin + rows; row += s.rows_at_once) {
    const int64_t count = std::min(s.rows_at_once, begin + rows - row);
    s.widen(operand(0, row), a, count * s.n);
    if (b != nullptr) s.widen(operand(1, row), b, count * s.n);
    compute(s, a, b, count, a);
    s.narrow(a, operand(s.inputs, row), count * s.n);
  }
}

KernelChoice choose_softmax(const OpView& op) {
  SoftmaxRows s;
  rows_of(op, s);
  KernelChoice choice;
  choice.tasks = ceil_div(s.rows, s.per_task);
  choice.task_stride.assign(static_cast<size_t>(op.inputs()) + 1,
                            s.per_task * s.n * size_of(s.dtype));
  choice.workspace_bytes = s.inputs * s.rows_at_once * s.n * 4;
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
