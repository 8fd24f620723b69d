#include <algorithm>

#include "sluice/base/checked.h"
#include "sluice/cpu/fused/reduce_view.h"
#include "sluice/cpu/kernels/kernel_list.h"
#include "sluice/cpu/kernels/tasks.h"
#include "sluice/ops/reduction_grads.h"

namespace sluice::cpu {
namespace {

// The gradient of a mean of rows, such as that of a global average pool: grad / n for each of the n
// elements of a row.
struct Spread {
  int64_t rows = 0;
  int64_t n = 1;
  int64_t per_task = 1;
};

std::optional<Spread> spread_of(const OpView& op) {
  if (&op.def() != &ops::reduce_mean_grad_def() || op.input(0).dtype != f32) return std::nullopt;
  const auto o = op.options<ops::ReduceGradOptions>();
  const Attrs mean = to_attrs(ops::ReduceOptions{.axes = o.axes, .keepdims = o.keepdims});
  const TensorSpec x{o.shape, f32, {}};
  const auto view = reduce_view(OpView(ops::reduce_mean_def(), mean, {&x, 1}));
  if (!view || view->columns || view->runs != 1 || view->extent == 0) return std::nullopt;
  return Spread{view->results, view->extent, rows_per_task(view->results, view->extent)};
}

void run_spread(const void* state, const runtime::KernelBlock& block, int64_t task) {
  const auto& s = *static_cast<const Spread*>(state);
  const auto* const grad = reinterpret_cast<const float*>(block.operands[0]);
  auto* const dx = reinterpret_cast<float*>(block.operands[1]);
  const int64_t end = std::min(s.rows, (task + 1) * s.per_task);
  for (int64_t r = task * s.per_task; r < end; ++r)
    std::fill_n(dx + r * s.n, s.n, grad[r] / static_cast<float>(s.n));
}

KernelChoice choose_spread(const OpView& op) {
  const Spread s = *spread_of(op);
  KernelChoice choice;
  choice.tasks = ceil_div(s.rows, s.per_task);
  if (choice.tasks > 1) choice.task_stride = {s.per_task * 4, s.per_task * s.n * 4};
  return choice;
}

}  // namespace

CpuKernel spread_kernel() {
  return {"cpu.spread", [](const OpView& op) { return spread_of(op).has_value(); }, choose_spread,
          [](std::shared_ptr<const OpRecord> op) {
            const OpView view = op->view();
            return runtime::BoundKernel{run_spread, std::make_shared<Spread>(*spread_of(view))};
          }};
}

}  // namespace sluice::cpu
