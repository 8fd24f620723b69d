#include "sluice/base/checked.h"
#include "sluice/cpu/fused/row_op.h"
#include "sluice/cpu/kernels/kernel_list.h"
#include "sluice/cpu/kernels/tasks.h"

namespace sluice::cpu {
namespace {

// A loss of all samples, computed from rows of probabilities or from the losses of the samples.
// `gradient` is set if the op also computes the gradient of the probabilities.
struct Loss {
  std::shared_ptr<const OpRecord> op;
  std::optional<RowOp> gradient;
  std::optional<LossTotal> total;
  int64_t rows = 0;
  int64_t classes = 0;
  int64_t per_task = 1;
};

bool supports_loss(const OpView& op) {
  const OpDef* const def = &op.def();
  const bool known = def == &ops::nll_loss_with_softmax_grad_def() || def == &ops::nll_loss_def() ||
                     def == &ops::nll_total_def();
  return known && op.output(0).dtype == f32 && op.input(0).elements() > 0;
}

Loss loss_of(const OpView& op) {
  Loss loss;
  const Shape& shape = op.input(0).shape;
  loss.total = LossTotal::of(op);
  loss.classes = loss.total ? 1 : shape.dim(-1);
  loss.rows = shape.elements() / loss.classes;
  loss.per_task = loss.rows;
  if (op.outputs() == 1) return loss;
  const TensorSpec inputs[] = {op.input(0), op.input(1)};
  loss.gradient = RowOp::of(OpView(ops::nll_softmax_grad_def(), op.attrs(), inputs, inputs));
  loss.per_task = rows_per_task(loss.rows, loss.classes);
  return loss;
}

void run_with_grad(const void* state, const runtime::KernelBlock& block, int64_t task) {
  const auto& loss = *static_cast<const Loss*>(state);
  const ops::Labels labels = loss.gradient->labels(block.operands[1]);
  auto* const probs = reinterpret_cast<float*>(block.operands[0]);
  if (task == 0) {
    const auto o = loss.op->view().options<ops::NllSoftmaxGradOptions>();
    ops::write_loss(labels, o.reduction, probs, loss.classes, false,
                    reinterpret_cast<float*>(block.operands[2]));
  }
  const int64_t begin = task * loss.per_task;
  const RowOp::Rows from{probs + begin * loss.classes, loss.classes};
  const RowOp::Rows to{reinterpret_cast<float*>(block.operands[3]) + begin * loss.classes,
                       loss.classes};
  const int64_t rows = std::min(loss.per_task, loss.rows - begin);
  loss.gradient->run({&labels, &from, to, begin, rows, loss.classes});
}

void run_loss(const void* state, const runtime::KernelBlock& block, int64_t) {
  const auto& loss = *static_cast<const Loss*>(state);
  const auto o = loss.op->view().options<ops::NllLossOptions>();
  const ops::Labels labels(block.operands[1], loss.op->inputs[1].dtype, loss.rows, loss.classes, o);
  ops::write_loss(labels, o.reduction, reinterpret_cast<const float*>(block.operands[0]),
                  loss.classes, o.log_prob, reinterpret_cast<float*>(block.operands[2]));
}

void run_loss_total(const void* state, const runtime::KernelBlock& block, int64_t) {
  const LossTotal& total = *static_cast<const Loss*>(state)->total;
  *reinterpret_cast<float*>(block.operands[2]) =
      total.run(total.labels(block.operands[1]), reinterpret_cast<const float*>(block.operands[0]));
}

KernelChoice choose_loss(const OpView& op) {
  const Loss loss = loss_of(op);
  KernelChoice choice;
  choice.tasks = ceil_div(loss.rows, loss.per_task);
  if (op.outputs() == 1) return choice;
  // The probabilities are not cut: the first task computes the losses from all their rows.
  choice.task_stride = {0, 0, op.output(0).bytes(), loss.per_task * loss.classes * 4};
  return choice;
}

}  // namespace

CpuKernel loss_kernel() {
  return {
      "cpu.loss", supports_loss, choose_loss, [](std::shared_ptr<const OpRecord> op) {
        const OpView view = op->view();
        auto state = std::make_shared<Loss>(loss_of(view));
        state->op = op;
        const auto run = state->gradient ? run_with_grad : state->total ? run_loss_total : run_loss;
        return runtime::BoundKernel{run, state};
      }};
}

}  // namespace sluice::cpu
