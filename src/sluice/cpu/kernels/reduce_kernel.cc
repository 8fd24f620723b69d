#include <algorithm>

#include "sluice/base/checked.h"
#include "sluice/cpu/fused/reduce_view.h"
#include "sluice/cpu/kernels/kernel_list.h"
#include "sluice/cpu/kernels/tasks.h"
#include "sluice/cpu/simd/conversions.h"

namespace sluice::cpu {
namespace {

constexpr int64_t kReduceBlock = 1024;  // Results computed in f32 before they are narrowed.

struct Reduce {
  ReduceView view;
  int64_t per_task = 1;
  DType from = f32;
  DType to = f32;
  NarrowFn narrow = nullptr;  // Null for f32.
};

bool matrix_of(const OpView& op, Reduce& r) {
  const auto view = reduce_view(op);
  if (!view || !computes_in_f32(op.input(0).dtype) || !computes_in_f32(op.output(0).dtype))
    return false;
  r.view = *view;
  r.from = op.input(0).dtype;
  r.to = op.output(0).dtype;
  if (r.to != f32) r.narrow = narrow_kernel(r.to);
  const int64_t max = std::max<int64_t>(1, kTaskElements / std::max<int64_t>(1, view->extent));
  r.per_task = std::max(round_up(max, 16), round_up(ceil_div(view->results, kMaxTasks), 16));
  // Rows that consist of runs are long, and their results are few.
  if (view->runs > 1) r.per_task = std::max(max, ceil_div(view->results, kMaxTasks));
  return true;
}

void reduce(const Reduce& r, FloatArray x, int64_t begin, int64_t count, float* y) {
  const ReduceView& v = r.view;
  if (v.runs > 1) {
    reduce_runs(v.op, x, v.runs, v.results, v.extent / v.runs, begin, begin + count, y);
  } else if (v.columns) {
    const int64_t cols = v.results / v.matrices;
    for (const int64_t end = begin + count; begin < end;) {
      const int64_t matrix = begin / cols, first = begin % cols;
      const int64_t some = std::min(cols - first, end - begin);
      reduce_columns(v.op, x.from(matrix * v.extent * cols + first), v.extent, some, cols, y);
      begin += some;
      y += some;
    }
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
  float floats[kReduceBlock];
  for (; begin < end; begin += kReduceBlock) {
    const int64_t count = std::min(kReduceBlock, end - begin);
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
            return runtime::BoundKernel{run_reduce, state};
          }};
}

}  // namespace sluice::cpu
