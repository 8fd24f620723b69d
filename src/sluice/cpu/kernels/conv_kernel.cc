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

bool supports_conv(const OpView& op) {
  const bool known = &op.def() == &ops::conv_def() || &op.def() == &ops::conv_transpose_def() ||
                     is_weight_grad(op);
  return known && op.input(0).dtype == f32 && op.output(0).elements() > 0;
}

struct Conv {
  explicit Conv(const OpView& op) : plan(plan_of(op)), cut(cut_conv(plan)) {}
  ConvPlan plan;
  ConvCut cut;
};

void run_conv(const void* state, const runtime::KernelBlock& block, int64_t task) {
  const auto& conv = *static_cast<const Conv*>(state);
  run_conv_task(conv.plan, conv.cut,
                {reinterpret_cast<const float*>(block.operands[0]),
                 reinterpret_cast<const float*>(block.operands[1]),
                 reinterpret_cast<float*>(block.operands[2])},
                task, reinterpret_cast<float*>(block.workspace));
}

KernelChoice choose_conv(const OpView& op) {
  const Conv conv(op);
  KernelChoice choice;
  choice.tasks = conv.cut.tasks;
  choice.workspace_bytes = conv_workspace_bytes(conv.plan);
  choice.task_stride = {conv.cut.source_stride, 0, conv.cut.stride};
  choice.task_pitch = {0, 0, conv.cut.pitch};
  return choice;
}

struct WeightGrad {
  explicit WeightGrad(const OpView& op)
      : correlation(weight_plan_of(op)), cut(cut_weight_grad(correlation)) {}
  WeightCorrelation correlation;
  WeightCut cut;
};

void run_weight_grad(const void* state, const runtime::KernelBlock& block, int64_t task) {
  const auto& grad = *static_cast<const WeightGrad*>(state);
  correlate_weights(grad.correlation,
                    {reinterpret_cast<const float*>(block.operands[0]),
                     reinterpret_cast<const float*>(block.operands[1]),
                     reinterpret_cast<float*>(block.operands[2])},
                    part_of(grad.cut, grad.correlation, task),
                    reinterpret_cast<float*>(block.workspace));
}

KernelChoice choose_weight_grad(const OpView& op) {
  const WeightGrad grad(op);
  KernelChoice choice;
  choice.tasks = grad.cut.tasks;
  choice.workspace_bytes = correlate_weights_workspace_bytes(grad.correlation, grad.cut.steps);
  choice.task_stride = {0, 0, grad.cut.stride};
  choice.task_pitch = {0, 0, grad.cut.pitch};
  return choice;
}

}  // namespace

CpuKernel conv_kernel() {
  return {"cpu.conv", supports_conv,
          [](const OpView& op) {
            return is_weight_grad(op) ? choose_weight_grad(op) : choose_conv(op);
          },
          [](std::shared_ptr<const OpRecord> op) {
            const OpView view = op->view();
            if (is_weight_grad(view)) {
              return runtime::BoundKernel{run_weight_grad, std::make_shared<WeightGrad>(view)};
            }
            return runtime::BoundKernel{run_conv, std::make_shared<Conv>(view)};
          }};
}

}  // namespace sluice::cpu
