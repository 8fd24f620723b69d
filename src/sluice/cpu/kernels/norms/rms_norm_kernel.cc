#include <algorithm>

#include "sluice/base/checked.h"
#include "sluice/cpu/kernels/kernel_list.h"
#include "sluice/cpu/kernels/tasks.h"
#include "sluice/cpu/simd/norm.h"
#include "sluice/ops/normalization.h"
#include "sluice/ops/norms.h"

namespace sluice::cpu {
namespace {

// The gradient of an RMS norm. A task works on some of the parts into which the rows are cut.
struct RmsNormGrad {
  explicit RmsNormGrad(const OpView& op)
      : parts(op.input(0).shape),
        epsilon(op.options<ops::RmsNormOptions>().epsilon),
        weighted(op.inputs() > 2) {
    per_task = std::max<int64_t>(1, kTaskElements / (parts.size * parts.cols));
  }

  ops::RowParts parts;
  double epsilon;
  bool weighted;
  int64_t per_task = 1;  // Parts of a task.
};

void run_rms_norm_grad(const void* state, const runtime::KernelBlock& block, int64_t task) {
  const auto& g = *static_cast<const RmsNormGrad*>(state);
  const auto operand = [&](int i) { return reinterpret_cast<float*>(block.operands[i]); };
  const int result = g.weighted ? 3 : 2;
  const int64_t n = g.parts.cols;
  const int64_t end = std::min(g.parts.count, (task + 1) * g.per_task);
  for (int64_t part = task * g.per_task; part < end; ++part) {
    const int64_t first = part * g.parts.size;
    float* const dweight = operand(result + 1) + part * n;
    std::fill_n(dweight, n, 0.0f);
    rms_norm_grad_rows(std::min(g.parts.size, g.parts.rows - first), n, operand(0) + first * n,
                       operand(1) + first * n, g.weighted ? operand(2) : nullptr, g.epsilon,
                       operand(result) + first * n, dweight);
  }
}

bool supports_rms_norm_grad(const OpView& op) {
  // Makes no definition of an operator that few programs need.
  return op.def().type == "RmsNormGrad" && op.input(0).dtype == f32 && op.input(0).elements() > 0;
}

KernelChoice choose_rms_norm_grad(const OpView& op) {
  const RmsNormGrad g(op);
  KernelChoice choice;
  choice.tasks = ceil_div(g.parts.count, g.per_task);
  const int64_t sums = g.per_task * g.parts.cols * 4;
  const int64_t rows = sums * g.parts.size;
  choice.task_stride = {rows, rows, rows, sums};
  if (g.weighted) choice.task_stride.insert(choice.task_stride.begin() + 2, 0);
  return choice;
}

}  // namespace

CpuKernel rms_norm_kernel() {
  return {
      "cpu.rms_norm", supports_rms_norm_grad, choose_rms_norm_grad,
      [](std::shared_ptr<const OpRecord> op) {
        return runtime::BoundKernel{run_rms_norm_grad, std::make_shared<RmsNormGrad>(op->view())};
      }};
}

}  // namespace sluice::cpu
