#include <algorithm>
#include <array>

#include "sluice/base/checked.h"
#include "sluice/cpu/fused/row_op.h"
#include "sluice/cpu/kernels/kernel_list.h"
#include "sluice/cpu/kernels/tasks.h"
#include "sluice/cpu/simd/conversions.h"

namespace sluice::cpu {
namespace {

constexpr int64_t kRowsBlock = 1024;  // Elements of an operand that are widened at once.

struct RowsKernel {
  explicit RowsKernel(const OpView& view) : op(*RowOp::of(view)), dtype(view.output(0).dtype) {
    n = op.cols();
    rows = op.rows();
    per_task = rows_per_task(rows, n);
    if (dtype == f32) return;
    rows_at_once = std::max<int64_t>(1, kRowsBlock / n);
    for (int i = 0; i < view.inputs(); ++i) at(elements, i) = view.input(i).elements();
    widen = widen_kernel(dtype);
    narrow = narrow_kernel(dtype);
  }

  int64_t tasks() const { return ceil_div(rows, per_task); }
  /// Elements of an operand from one row to the next; 0 if all rows read the same elements.
  int64_t step(RowOp::Operand operand) const {
    if (operand == RowOp::Operand::kRows) return n;
    return operand == RowOp::Operand::kSamples ? 1 : 0;
  }
  int64_t result_step() const { return op.reduces_rows() ? 1 : n; }

  RowOp op;
  DType dtype;
  int64_t rows = 1;
  int64_t n = 1;
  int64_t per_task = 1;
  int64_t rows_at_once = 0;  // Rows that are widened into the workspace at once; 0 for f32.
  WidenFn widen = nullptr;
  NarrowFn narrow = nullptr;
  /// Elements of each operand; a shared one has at most n and is widened as a whole.
  std::array<int64_t, RowOp::kMaxInputs> elements{};
};

void run_floats(const RowsKernel& k, const runtime::KernelBlock& block, const ops::Labels* labels,
                int64_t begin, int64_t rows) {
  RowOp::Rows inputs[RowOp::kMaxInputs];
  const auto kinds = k.op.inputs();
  for (size_t i = 0; i < kinds.size(); ++i) {
    const int64_t step = k.step(kinds[i]);
    inputs[i] = {reinterpret_cast<float*>(block.operands[i]) + begin * step, step};
  }
  const int64_t step = k.result_step();
  auto* const result = reinterpret_cast<float*>(block.operands[kinds.size()]) + begin * step;
  k.op.run({labels, inputs, {result, step}, begin, rows, k.n});
}

void run_halves(const RowsKernel& k, const runtime::KernelBlock& block, const ops::Labels* labels,
                int64_t begin, int64_t rows) {
  RowOp::Rows inputs[RowOp::kMaxInputs];
  const auto kinds = k.op.inputs();
  const int64_t size = size_of(k.dtype);
  const int64_t step = k.result_step();
  for (int64_t row = begin; row < begin + rows; row += k.rows_at_once) {
    const int64_t count = std::min(k.rows_at_once, begin + rows - row);
    auto* floats = reinterpret_cast<float*>(block.workspace);
    for (size_t i = 0; i < kinds.size(); ++i) {
      if (kinds[i] == RowOp::Operand::kLabels) continue;
      inputs[i] = {floats, k.step(kinds[i])};
      const int64_t elements =
          kinds[i] == RowOp::Operand::kShared ? k.elements[i] : inputs[i].step * count;
      k.widen(block.operands[i] + row * inputs[i].step * size, floats, elements);
      floats += k.rows_at_once * k.n;
    }
    k.op.run({labels, inputs, {floats, step}, row, count, k.n});
    k.narrow(floats, block.operands[kinds.size()] + row * step * size, count * step);
  }
}

void run_rows(const void* state, const runtime::KernelBlock& block, int64_t task) {
  const auto& k = *static_cast<const RowsKernel*>(state);
  std::optional<ops::Labels> labels;
  if (const int i = k.op.labels_input(); i >= 0) labels = k.op.labels(block.operands[i]);
  const int64_t begin = task * k.per_task;
  const int64_t rows = std::min(k.per_task, k.rows - begin);
  const auto run_rows = k.dtype == f32 ? run_floats : run_halves;
  run_rows(k, block, labels ? &*labels : nullptr, begin, rows);
}

KernelChoice choose_rows(const OpView& op) {
  const RowsKernel k(op);
  KernelChoice choice;
  choice.tasks = k.tasks();
  int64_t operands = 1;
  for (const RowOp::Operand kind : k.op.inputs()) {
    choice.task_stride.push_back(k.per_task * k.step(kind) * size_of(k.dtype));
    operands += kind != RowOp::Operand::kLabels;
  }
  choice.task_stride.push_back(k.per_task * k.result_step() * size_of(k.dtype));
  choice.workspace_bytes = operands * k.rows_at_once * k.n * static_cast<int64_t>(sizeof(float));
  return choice;
}

}  // namespace

CpuKernel rows_kernel() {
  return {"cpu.rows", [](const OpView& op) { return RowOp::of(op).has_value(); }, choose_rows,
          [](std::shared_ptr<const OpRecord> op) {
            return runtime::BoundKernel{run_rows, std::make_shared<RowsKernel>(op->view())};
          }};
}

}  // namespace sluice::cpu
