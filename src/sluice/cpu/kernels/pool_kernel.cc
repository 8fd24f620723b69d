#include <algorithm>

#include "sluice/base/checked.h"
#include "sluice/cpu/kernels/kernel_list.h"
#include "sluice/cpu/kernels/tasks.h"
#include "sluice/cpu/pool/pool.h"

namespace sluice::cpu {
namespace {

enum class PoolOp { kMax, kTaps, kAverage, kMaxGrad, kAverageGrad };

std::optional<PoolOp> kind_of(const OpDef& def) {
  const std::pair<const OpDef*, PoolOp> table[] = {
      {&ops::max_pool_def(), PoolOp::kMax},
      {&ops::max_pool_taps_def(), PoolOp::kTaps},
      {&ops::average_pool_def(), PoolOp::kAverage},
      {&ops::max_pool_grad_def(), PoolOp::kMaxGrad},
      {&ops::average_pool_grad_def(), PoolOp::kAverageGrad}};
  for (const auto& [d, kind] : table) {
    if (d == &def) return kind;
  }
  return std::nullopt;
}

struct Pool {
  PoolOp kind = PoolOp::kMax;
  PoolPlan plan;
  int64_t per_task = 1;  // Planes of a task.

  bool is_gradient() const { return kind == PoolOp::kMaxGrad || kind == PoolOp::kAverageGrad; }
  int64_t tasks() const { return std::max<int64_t>(1, ceil_div(plan.shape.planes, per_task)); }
  /// Bytes of one plane of x and of y, by the size of an element.
  int64_t x_bytes() const { return plan.x_positions * size_of(f32); }
  int64_t y_bytes(DType dtype) const { return plan.y_positions * size_of(dtype); }
};

std::optional<Pool> pool_of(const OpView& op) {
  const auto kind = kind_of(op.def());
  if (!kind || op.input(0).dtype != f32) return std::nullopt;
  if (*kind == PoolOp::kTaps && op.output(0).dtype != u8) return std::nullopt;
  if (*kind == PoolOp::kMaxGrad && op.input(1).dtype != u8) return std::nullopt;
  Pool pool{.kind = *kind};
  const ops::PoolShape shape = ops::pool_shape(op);
  const auto plan = *kind == PoolOp::kMaxGrad       ? PoolPlan::max_gradient(shape)
                    : *kind == PoolOp::kAverageGrad ? PoolPlan::average_gradient(shape)
                                                    : PoolPlan::forward(shape);
  if (!plan) return std::nullopt;
  pool.plan = *plan;
  pool.per_task = rows_per_task(shape.planes, plan->x_positions);
  return pool;
}

void run_pool(const void* state, const runtime::KernelBlock& block, int64_t task) {
  const auto& pool = *static_cast<const Pool*>(state);
  const PoolPlan& plan = pool.plan;
  const int64_t first = task * pool.per_task;
  const int64_t planes = std::min(pool.per_task, plan.shape.planes - first);
  const int64_t x_at = first * plan.x_positions, y_at = first * plan.y_positions;
  auto* const workspace = reinterpret_cast<float*>(block.workspace);
  const auto floats = [&](int operand) {
    return reinterpret_cast<float*>(block.operands[operand]);
  };
  const auto bytes = [&](int operand) {
    return reinterpret_cast<uint8_t*>(block.operands[operand]) + y_at;
  };
  switch (pool.kind) {
    case PoolOp::kMax:
      return max_pool_planes(plan, floats(0) + x_at, planes, floats(1) + y_at, workspace);
    case PoolOp::kTaps:
      return max_pool_taps_planes(plan, floats(0) + x_at, planes, bytes(1), workspace);
    case PoolOp::kAverage:
      return average_pool_planes(plan, floats(0) + x_at, planes, floats(1) + y_at, workspace);
    case PoolOp::kMaxGrad:
      return max_pool_grad_planes(plan, floats(0) + y_at, bytes(1), planes, floats(2) + x_at);
    case PoolOp::kAverageGrad:
      return average_pool_grad_planes(plan, floats(0) + y_at, planes, floats(1) + x_at, workspace);
  }
}

KernelChoice choose_pool(const OpView& op) {
  const Pool pool = *pool_of(op);
  KernelChoice choice;
  choice.tasks = pool.tasks();
  choice.workspace_bytes = pool.plan.workspace_floats * size_of(f32);
  if (choice.tasks == 1) return choice;
  const int64_t x = pool.per_task * pool.x_bytes();
  const auto y = [&](const TensorSpec& spec) { return pool.per_task * pool.y_bytes(spec.dtype); };
  if (!pool.is_gradient()) {
    choice.task_stride = {x, y(op.output(0))};
  } else {
    for (int i = 0; i < op.inputs(); ++i) choice.task_stride.push_back(y(op.input(i)));
    choice.task_stride.push_back(x);
  }
  return choice;
}

}  // namespace

CpuKernel pool_kernel() {
  return {"cpu.pool", [](const OpView& op) { return pool_of(op).has_value(); }, choose_pool,
          [](std::shared_ptr<const OpRecord> op) {
            const OpView view = op->view();
            return runtime::BoundKernel{run_pool, std::make_shared<Pool>(*pool_of(view))};
          }};
}

}  // namespace sluice::cpu
