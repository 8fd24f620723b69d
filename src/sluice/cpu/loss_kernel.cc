#include <algorithm>

#include "sluice/base/checked.h"
#include "sluice/cpu/kernel_list.h"
#include "sluice/cpu/vector_kernels.h"
#include "sluice/ops/functors.h"
#include "sluice/ops/loss_rows.h"

namespace sluice::cpu {
namespace {

constexpr int64_t kMostTasks = 16;
constexpr int64_t kTaskElements = 4096;

// Gradients of a loss, by rows of classes.
struct Loss {
  std::shared_ptr<const OpRecord> op;
  int64_t rows = 0;
  int64_t classes = 0;
  int64_t per_task = 1;
};

// The output that has a row of classes for each sample.
int grad_output(const OpView& op) {
  return &op.def() == &ops::nll_loss_with_softmax_grad_def() ? 1 : 0;
}

bool supports(const OpView& op) {
  const bool known =
      &op.def() == &ops::nll_loss_with_softmax_grad_def() || &op.def() == &ops::nll_grad_def();
  return known && op.output(0).dtype == f32 && op.output(grad_output(op)).elements() > 0;
}

Loss loss_of(const OpView& op) {
  Loss loss;
  const Shape& shape = op.output(grad_output(op)).shape;
  loss.classes = shape.dim(-1);
  loss.rows = shape.elements() / loss.classes;
  loss.per_task =
      std::max<int64_t>({1, kTaskElements / loss.classes, ceil_div(loss.rows, kMostTasks)});
  return loss;
}

void run_with_grad(const void* state, const runtime::KernelBlock& block, int64_t task) {
  const auto& loss = *static_cast<const Loss*>(state);
  const OpView op = loss.op->view();
  const auto o = op.options<ops::NllSoftmaxGradOptions>();
  const ops::Labels labels(block.operands[1], op.input(1).dtype, loss.rows, loss.classes, o);
  const auto* probs = reinterpret_cast<const float*>(block.operands[0]);
  auto* dx = reinterpret_cast<float*>(block.operands[3]);
  if (task == 0) {
    ops::write_loss(labels, o.reduction, probs, loss.classes, false,
                    reinterpret_cast<float*>(block.operands[2]));
  }
  const auto scale = ops::softmax_grad_scale<float>(labels, o);
  const int64_t begin = task * loss.per_task;
  const int64_t end = std::min(loss.rows, begin + loss.per_task);
  for (int64_t i = begin; i < end; ++i) {
    const float* const from = probs + i * loss.classes;
    float* const to = dx + i * loss.classes;
    const float at_label = labels.counts(i) ? (from[labels[i]] - 1) * scale : 0.0f;
    map2(ops::functor::Mul{}, {from}, {&scale, 0}, to, loss.classes);
    ops::finish_grad_row(labels, i, loss.classes, at_label, to);
  }
}

void run_grad(const void* state, const runtime::KernelBlock& block, int64_t task) {
  const auto& loss = *static_cast<const Loss*>(state);
  const OpView op = loss.op->view();
  const auto o = op.options<ops::NllGradOptions>();
  const ops::Labels labels(block.operands[1], op.input(1).dtype, loss.rows, loss.classes, o);
  const auto* probs =
      op.inputs() == 3 ? reinterpret_cast<const float*>(block.operands[2]) : nullptr;
  const int64_t begin = task * loss.per_task;
  ops::nll_grad_rows(labels, o.reduction, reinterpret_cast<const float*>(block.operands[0]), probs,
                     loss.classes, begin, std::min(loss.rows, begin + loss.per_task),
                     reinterpret_cast<float*>(block.operands[op.inputs()]));
}

KernelChoice choose(const OpView& op) {
  const Loss loss = loss_of(op);
  KernelChoice choice;
  choice.tasks = ceil_div(loss.rows, loss.per_task);
  choice.task_stride.assign(static_cast<size_t>(op.inputs() + op.outputs()), 0);
  const int64_t rows = loss.per_task * loss.classes * 4;
  choice.task_stride.back() = rows;
  // The first task writes the losses, which need every row of the probabilities.
  if (op.outputs() == 2) choice.task_stride[2] = op.output(0).bytes();
  return choice;
}

}  // namespace

CpuKernel loss_kernel() {
  return {
      "cpu.loss", supports, choose, [](std::shared_ptr<const OpRecord> op) {
        const OpView view = op->view();
        auto state = std::make_shared<Loss>(loss_of(view));
        state->op = op;
        const bool with_grad = view.outputs() == 2;
        return runtime::BoundKernel{with_grad ? run_with_grad : run_grad, state, flops_of(view)};
      }};
}

}  // namespace sluice::cpu
