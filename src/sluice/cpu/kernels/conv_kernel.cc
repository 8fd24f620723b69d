#include "sluice/base/checked.h"
#include "sluice/cpu/conv/conv_op.h"
#include "sluice/cpu/kernels/kernel_list.h"

namespace sluice::cpu {
namespace {

bool is_weight_grad(const OpView& op) { return &op.def() == &ops::conv_weight_grad_def(); }

ConvPlan plan_of(const OpView& op) {
  const ops::ConvSizes sizes = ops::conv_sizes(op);
  return &op.def() == &ops::conv_def() ? plan_conv(sizes, weight_steps(sizes))
                                       : plan_conv_transpose(sizes, weight_steps(sizes));
}

WeightCorrelation weight_plan_of(const OpView& op) {
  const ops::ConvSizes sizes = ops::conv_sizes(op);
  return plan_conv_weight_grad(sizes, weight_steps(sizes));
}

bool supports(const OpView& op) {
  const bool known = &op.def() == &ops::conv_def() || &op.def() == &ops::conv_transpose_def() ||
                     is_weight_grad(op);
  return known && op.input(0).dtype == f32 && op.output(0).elements() > 0;
}

struct Conv {
  explicit Conv(const OpView& op) : plan(plan_of(op)), cut(cut_conv(plan)) {
    for (const Correlation& c : plan.correlations)
      correlate_bytes = std::max(correlate_bytes, round_up(correlate_workspace_bytes(c), 64));
  }
  int64_t scratch_bytes() const {
    return plan.interleaves() ? plan.correlations[0].result_plane * 4 : 0;
  }

  ConvPlan plan;
  ConvCut cut;
  int64_t correlate_bytes = 0;
};

void run(const void* state, const runtime::KernelBlock& block, int64_t task) {
  const auto& conv = *static_cast<const Conv*>(state);
  auto* const workspace = reinterpret_cast<float*>(block.workspace);
  int64_t offset = 0;
  for (Correlation c : conv.plan.correlations) {
    c.source = reinterpret_cast<const float*>(block.operands[0]);
    c.weight = reinterpret_cast<const float*>(block.operands[1]);
    c.result = reinterpret_cast<float*>(block.operands[2]) + offset;
    correlate(c, part_of(conv.cut, c, task), workspace);
    offset += c.windows.positions();
  }
  if (!conv.plan.interleaves()) return;
  const Correlation& c = conv.plan.correlations[0];
  const ConvPart part = part_of(conv.cut, c, task);
  const int64_t rows = c.windows.groups * c.rows;
  for (int64_t n = part.first_sample; n < part.end_sample; ++n) {
    for (int64_t row = part.first_row; row < part.end_row; ++row) {
      interleave(conv.plan,
                 reinterpret_cast<float*>(block.operands[2]) + (n * rows + row) * c.result_plane,
                 workspace + conv.correlate_bytes / 4);
    }
  }
}

KernelChoice choose(const OpView& op) {
  const Conv conv(op);
  const Correlation& c = conv.plan.correlations[0];
  const ConvWindows& w = c.windows;
  KernelChoice choice;
  choice.tasks = conv.cut.tasks;
  choice.workspace_bytes = conv.correlate_bytes + conv.scratch_bytes();
  if (choice.tasks == 1) return choice;
  const int64_t rows = w.groups * c.rows;
  const int64_t source = w.groups * w.channels * w.plane();
  choice.task_stride = {0, 0, 0};
  choice.task_pitch = {0, 0, 0};
  if (conv.cut.samples < w.batch) {
    choice.task_stride = {conv.cut.samples * source * 4, 0,
                          conv.cut.samples * rows * c.result_plane * 4};
  } else if (conv.cut.rows < rows) {
    choice.task_stride[2] = conv.cut.rows * c.result_plane * 4;
    choice.task_pitch[2] = w.batch > 1 ? rows * c.result_plane * 4 : 0;
  } else {
    choice.task_stride[2] = conv.cut.positions * 4;
    choice.task_pitch[2] = c.result_plane * 4;
  }
  return choice;
}

// The result is row-major, so the bytes of a part of the steps cannot be stated for the proof of
// the plan. One task computes all. A fused kernel, whose result is in taps, has several.
struct WeightGrad {
  explicit WeightGrad(const OpView& op) : correlation(weight_plan_of(op)) {}
  int64_t steps() const { return correlation.windows.groups * correlation.windows.depth(); }
  WeightCorrelation correlation;
};

void run_weight_grad(const void* state, const runtime::KernelBlock& block, int64_t /*task*/) {
  const auto& grad = *static_cast<const WeightGrad*>(state);
  WeightCorrelation c = grad.correlation;
  c.source = reinterpret_cast<const float*>(block.operands[0]);
  c.y = reinterpret_cast<const float*>(block.operands[1]);
  c.result = reinterpret_cast<float*>(block.operands[2]);
  correlate_weights(c, 0, grad.steps(), reinterpret_cast<float*>(block.workspace));
}

KernelChoice choose_weight_grad(const OpView& op) {
  const WeightGrad grad(op);
  KernelChoice choice;
  choice.workspace_bytes = correlate_weights_workspace_bytes(grad.correlation, grad.steps());
  return choice;
}

}  // namespace

CpuKernel conv_kernel() {
  return {"cpu.conv", supports,
          [](const OpView& op) { return is_weight_grad(op) ? choose_weight_grad(op) : choose(op); },
          [](std::shared_ptr<const OpRecord> op) {
            const OpView view = op->view();
            if (is_weight_grad(view)) {
              return runtime::BoundKernel{run_weight_grad, std::make_shared<WeightGrad>(view),
                                          flops_of(view)};
            }
            return runtime::BoundKernel{run, std::make_shared<Conv>(view), flops_of(view)};
          }};
}

}  // namespace sluice::cpu
