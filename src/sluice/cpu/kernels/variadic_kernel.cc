#include <algorithm>
#include <cstring>

#include "sluice/base/checked.h"
#include "sluice/cpu/kernels/kernel_list.h"
#include "sluice/cpu/kernels/tasks.h"
#include "sluice/cpu/simd/vector_kernels.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/functors.h"

namespace sluice::cpu {
namespace {

constexpr int64_t kCombinedBlock = 2048;  // Elements of a result that stay in the first cache.

// Returns the functor that combines the operands; null if the op is another.
MapFn combine_of(const OpDef& def) {
  const Isa isa = current_isa();
  if (&def == &ops::add_n_def()) return map_kernel<ops::functor::Add>(isa);
  if (&def == &ops::maximum_def()) return map_kernel<ops::functor::Max>(isa);
  if (&def == &ops::minimum_def()) return map_kernel<ops::functor::Min>(isa);
  return nullptr;
}

// Any number of operands of one shape, combined from the left.
struct Variadic {
  explicit Variadic(const OpView& op)
      : combine(combine_of(op.def())),
        inputs(op.inputs()),
        elements(op.output(0).elements()),
        per_task(round_up(std::max(kTaskElements, ceil_div(elements, kMaxTasks)), 16)) {}
  int64_t tasks() const { return std::max<int64_t>(1, ceil_div(elements, per_task)); }

  MapFn combine;
  int inputs;
  int64_t elements;
  int64_t per_task;
};

void run_variadic(const void* state, const runtime::KernelBlock& block, int64_t task) {
  const auto& v = *static_cast<const Variadic*>(state);
  const auto in = [&](int i) { return reinterpret_cast<const float*>(block.operands[i]); };
  auto* const y = reinterpret_cast<float*>(block.operands[v.inputs]);
  const int64_t end = std::min(v.elements, (task + 1) * v.per_task);
  alignas(64) float combined[kCombinedBlock];
  for (int64_t i = task * v.per_task; i < end; i += kCombinedBlock) {
    const int64_t n = std::min(kCombinedBlock, end - i);
    if (v.inputs == 1) std::memmove(y + i, in(0) + i, static_cast<size_t>(n) * sizeof(float));
    for (int operand = 1; operand < v.inputs; ++operand) {
      // y may be an operand, so it is written last.
      const bool is_last = operand + 1 == v.inputs;
      const MapInput inputs[] = {{operand == 1 ? in(0) + i : combined}, {in(operand) + i}};
      const MapOutput output{is_last ? y + i : combined};
      v.combine(nullptr, inputs, &output, 1, n);
    }
  }
}

bool supports_variadic(const OpView& op) {
  if (combine_of(op.def()) == nullptr || op.output(0).dtype != f32) return false;
  for (int i = 0; i < op.inputs(); ++i) {
    if (op.input(i).shape != op.output(0).shape) return false;
  }
  return true;
}

KernelChoice choose_variadic(const OpView& op) {
  const Variadic v(op);
  KernelChoice choice{.tasks = v.tasks()};
  if (choice.tasks > 1)
    choice.task_stride.assign(static_cast<size_t>(v.inputs) + 1, v.per_task * 4);
  return choice;
}

}  // namespace

CpuKernel variadic_kernel() {
  return {"cpu.variadic", supports_variadic, choose_variadic,
          [](std::shared_ptr<const OpRecord> op) {
            return runtime::BoundKernel{run_variadic, std::make_shared<Variadic>(op->view())};
          }};
}

}  // namespace sluice::cpu
