#include <algorithm>

#include "sluice/base/checked.h"
#include "sluice/cpu/kernels/kernel_list.h"
#include "sluice/cpu/kernels/tasks.h"
#include "sluice/cpu/simd/norm.h"
#include "sluice/ops/normalization.h"
#include "sluice/ops/norms.h"

namespace sluice::cpu {
namespace {

// The gradient of a layer norm. A task works on some of the parts into which the rows are cut.
struct LayerNormGrad {
  explicit LayerNormGrad(const OpView& op)
      : parts(op.input(0).shape),
        epsilon(op.options<ops::LayerNormOptions>().epsilon),
        weighted(op.inputs() > 2) {
    per_task = std::max<int64_t>(1, kTaskElements / (parts.size * parts.cols));
  }
  int64_t tasks() const { return ceil_div(parts.count, per_task); }

  ops::RowParts parts;
  double epsilon;
  bool weighted;
  int64_t per_task = 1;  // Parts of a task.
};

void run_layer_norm(const void* state, const runtime::KernelBlock& block, int64_t task) {
  const auto& g = *static_cast<const LayerNormGrad*>(state);
  const auto in = [&](int i) { return reinterpret_cast<const float*>(block.operands[i]); };
  const auto out = [&](int o) {
    return reinterpret_cast<float*>(block.operands[(g.weighted ? 3 : 2) + o]);
  };
  const int64_t n = g.parts.cols;
  const int64_t end = std::min(g.parts.count, (task + 1) * g.per_task);
  for (int64_t part = task * g.per_task; part < end; ++part) {
    const int64_t first = part * g.parts.size;
    float* const dweight = out(1) + part * n;
    float* const dbias = out(2) + part * n;
    std::fill_n(dweight, n, 0.0f);
    std::fill_n(dbias, n, 0.0f);
    layer_norm_grad_rows(std::min(g.parts.size, g.parts.rows - first), n, in(0) + first * n,
                         in(1) + first * n, g.weighted ? in(2) : nullptr, g.epsilon,
                         out(0) + first * n, dweight, dbias);
  }
}

bool supports_layer_norm(const OpView& op) {
  return &op.def() == &ops::layer_norm_grad_def() && op.input(0).dtype == f32 &&
         op.input(0).elements() > 0;
}

KernelChoice choose_layer_norm(const OpView& op) {
  const LayerNormGrad g(op);
  KernelChoice choice;
  choice.tasks = g.tasks();
  const int64_t sums = g.per_task * g.parts.cols * 4;
  const int64_t rows = sums * g.parts.size;
  choice.task_stride = {rows, rows, 0, rows, sums, sums};
  if (!g.weighted) choice.task_stride.erase(choice.task_stride.begin() + 2);
  return choice;
}

}  // namespace

CpuKernel layer_norm_kernel() {
  return {
      "cpu.layer_norm", supports_layer_norm, choose_layer_norm,
      [](std::shared_ptr<const OpRecord> op) {
        return runtime::BoundKernel{run_layer_norm, std::make_shared<LayerNormGrad>(op->view())};
      }};
}

}  // namespace sluice::cpu
