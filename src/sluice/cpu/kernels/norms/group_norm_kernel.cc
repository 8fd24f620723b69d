#include <algorithm>
#include <array>

#include "sluice/base/checked.h"
#include "sluice/base/reduce.h"
#include "sluice/cpu/kernels/kernel_list.h"
#include "sluice/cpu/kernels/tasks.h"
#include "sluice/cpu/simd/norm.h"
#include "sluice/ops/normalization.h"
#include "sluice/ops/norms.h"

namespace sluice::cpu {
namespace {

constexpr int64_t kGroupNormsAtOnce = 64;  // Planes of one call of a vector function.
using PlaneSums = std::array<float, kGroupNormsAtOnce>;

// A group norm. The groups of all samples are contiguous rows, which are cut into tasks.
struct GroupNorm {
  explicit GroupNorm(const OpView& op)
      : gradient(&op.def() == &ops::group_norm_grad_def()), planes(op.input(0).shape) {
    const auto o = op.options<ops::GroupNormOptions>();
    epsilon = o.epsilon;
    groups = o.groups;
    channels = planes.channels / groups;
    extent = channels * planes.size;
    rows = planes.batch * groups;
    per_task = rows_per_task(rows, extent);
    inputs = op.inputs();
    const int own = gradient ? 2 : 1;
    if (inputs > own) weight = own;
    if (inputs > own + 1) bias = own + 1;
  }

  int64_t tasks() const { return ceil_div(rows, per_task); }

  bool gradient;
  ops::Planes planes;
  double epsilon = 0;
  int64_t groups = 1;
  int64_t channels = 0;  // Channels of a group.
  int64_t extent = 0;    // Elements of a group.
  int64_t rows = 0;
  int64_t per_task = 1;
  int inputs = 0;
  int weight = -1;  // Operand; -1: absent.
  int bias = -1;
};

// The operands of a call.
struct Operands {
  const float* in(int i) const {
    return i < 0 ? nullptr : reinterpret_cast<const float*>(block.operands[i]);
  }
  float* out(int o) const { return reinterpret_cast<float*>(block.operands[norm.inputs + o]); }
  const GroupNorm& norm;
  const runtime::KernelBlock& block;
};

// Calls f(first channel in the group, rows of a vector function) for parts of a group.
template <typename F>
void for_channels(const GroupNorm& g, F f) {
  for (int64_t j = 0; j < g.channels; j += kGroupNormsAtOnce)
    f(j, NormRows{std::min(kGroupNormsAtOnce, g.channels - j), g.planes.size, g.planes.size});
}

void run_group_forward(const Operands& o, int64_t row, float mean, float inverse) {
  const GroupNorm& g = o.norm;
  const float* const x = o.in(0) + row * g.extent;
  float* const y = o.out(0) + row * g.extent;
  const int64_t channel = row % g.groups * g.channels;
  PlaneSums means, scale, shift;
  means.fill(mean);
  for_channels(g, [&](int64_t j, const NormRows& planes) {
    for (int64_t i = 0; i < planes.rows; ++i) {
      const int64_t c = channel + j + i;
      scale.data()[i] = g.weight < 0 ? inverse : inverse * o.in(g.weight)[c];
      shift.data()[i] = g.bias < 0 ? 0.0f : o.in(g.bias)[c];
    }
    const NormNumbers numbers{.mean = means.data(), .scale = scale.data(), .shift = shift.data()};
    norm_scale(planes, x + j * g.planes.size, numbers, y + j * g.planes.size);
  });
}

void run_group_gradient(const Operands& o, int64_t row, float mean, float inverse) {
  const GroupNorm& g = o.norm;
  const float* const grad = o.in(0) + row * g.extent;
  const float* const x = o.in(1) + row * g.extent;
  float* const dx = o.out(0) + row * g.extent;
  float* const products = o.out(1) + row * g.channels;
  float* const grads = o.out(2) + row * g.channels;
  const int64_t channel = row % g.groups * g.channels;
  const auto weight = [&](int64_t j) { return g.weight < 0 ? 1.0f : o.in(g.weight)[channel + j]; };
  PlaneSums means, scale, slopes, shifts;
  means.fill(mean);
  for_channels(g, [&](int64_t j, const NormRows& planes) {
    const int64_t at = j * g.planes.size;
    norm_products(planes, grad + at, x + at, {means.data()}, grads + j, products + j);
    for (int64_t i = j; i < j + planes.rows; ++i) products[i] = products[i] * inverse;
  });
  const auto count = static_cast<float>(g.extent);
  const auto weighted_mean = [&](const float* sums) {
    return canonical_sum<float>(g.channels, [&](int64_t j) { return weight(j) * sums[j]; }) / count;
  };
  shifts.fill(inverse * weighted_mean(grads));
  slopes.fill((inverse * inverse) * weighted_mean(products));
  for_channels(g, [&](int64_t j, const NormRows& planes) {
    for (int64_t i = 0; i < planes.rows; ++i) scale.data()[i] = inverse * weight(j + i);
    const int64_t at = j * g.planes.size;
    norm_gradient(planes, grad + at, x + at,
                  {means.data(), scale.data(), slopes.data(), shifts.data()}, dx + at);
  });
}

void run_group_norm(const void* state, const runtime::KernelBlock& block, int64_t task) {
  const auto& g = *static_cast<const GroupNorm*>(state);
  const Operands operands{g, block};
  const int64_t end = std::min(g.rows, (task + 1) * g.per_task);
  constexpr int64_t kRows = 4;  // Sums of several rows at once hide the latency of additions.
  float mean[kRows], inverse[kRows];
  for (int64_t row = task * g.per_task; row < end; row += kRows) {
    const int64_t rows = std::min(kRows, end - row);
    norm_moments({rows, g.extent, g.extent}, operands.in(g.gradient ? 1 : 0) + row * g.extent,
                 g.epsilon, mean, inverse);
    for (int64_t r = 0; r < rows; ++r) {
      const auto run_row = g.gradient ? run_group_gradient : run_group_forward;
      run_row(operands, row + r, mean[r], inverse[r]);
    }
  }
}

bool supports_group_norm(const OpView& op) {
  const OpDef* const def = &op.def();
  return (def == &ops::group_norm_def() || def == &ops::group_norm_grad_def()) &&
         op.input(0).dtype == f32 && op.input(0).elements() > 0;
}

KernelChoice choose_group_norm(const OpView& op) {
  const GroupNorm g(op);
  KernelChoice choice;
  choice.tasks = g.tasks();
  const int own = g.gradient ? 2 : 1;
  for (int i = 0; i < op.inputs(); ++i)
    choice.task_stride.push_back(i < own ? g.per_task * g.extent * 4 : 0);
  choice.task_stride.push_back(g.per_task * g.extent * 4);
  for (int i = 1; i < op.outputs(); ++i) choice.task_stride.push_back(g.per_task * g.channels * 4);
  return choice;
}

}  // namespace

CpuKernel group_norm_kernel() {
  return {"cpu.group_norm", supports_group_norm, choose_group_norm,
          [](std::shared_ptr<const OpRecord> op) {
            return runtime::BoundKernel{run_group_norm, std::make_shared<GroupNorm>(op->view())};
          }};
}

}  // namespace sluice::cpu
