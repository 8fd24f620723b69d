#include <algorithm>

#include "sluice/base/checked.h"
#include "sluice/cpu/kernels/kernel_list.h"
#include "sluice/cpu/kernels/rotary/rotary.h"
#include "sluice/cpu/kernels/tasks.h"
#include "sluice/ops/attention.h"

namespace sluice::cpu {
namespace {

// A rotary position embedding. A task computes some rows of x.
struct Rotary {
  explicit Rotary(const OpView& op) {
    const auto o = op.options<ops::RotaryOptions>();
    const Shape& x = op.input(0).shape;
    const Shape& table = op.input(1).shape;
    shape.size = x.dim(-1);
    shape.rows = x.elements() / shape.size;
    shape.length = table[0];
    shape.half = table[1] / 2;
    shape.interleaved = o.interleaved;
    shape.inverse = o.inverse;
    per_task = rows_per_task(shape.rows, shape.size);
  }

  RotaryRows shape;  // All rows.
  int64_t per_task = 1;
};

void run_rotary_rows(const void* state, const runtime::KernelBlock& block, int64_t task) {
  const auto& rotary = *static_cast<const Rotary*>(state);
  const auto operand = [&](int i) { return reinterpret_cast<float*>(block.operands[i]); };
  RotaryRows some = rotary.shape;
  some.first = task * rotary.per_task;
  some.rows = std::min(rotary.per_task, rotary.shape.rows - some.first);
  const int64_t at = some.first * some.size;
  with_kernels<internal::RotaryKernels>(
      current_isa(), [&](auto k) { k.run(some, operand(0) + at, operand(1), operand(2) + at); });
}

}  // namespace

CpuKernel rotary_kernel() {
  return {"cpu.rotary",
          [](const OpView& op) {
            // Makes no definition of an operator that few programs need.
            return op.def().type == "Rotary" && op.input(0).dtype == f32 &&
                   op.input(0).elements() > 0;
          },
          [](const OpView& op) {
            const Rotary rotary(op);
            KernelChoice choice;
            choice.tasks = ceil_div(rotary.shape.rows, rotary.per_task);
            const int64_t stride = rotary.per_task * rotary.shape.size * int64_t{sizeof(float)};
            choice.task_stride = {stride, 0, stride};
            return choice;
          },
          [](std::shared_ptr<const OpRecord> op) {
            return runtime::BoundKernel{run_rotary_rows, std::make_shared<Rotary>(op->view())};
          }};
}

}  // namespace sluice::cpu
