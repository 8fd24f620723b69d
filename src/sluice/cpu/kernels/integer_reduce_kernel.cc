#include <algorithm>
#include <limits>

#include "sluice/base/checked.h"
#include "sluice/cpu/kernels/kernel_list.h"
#include "sluice/cpu/kernels/tasks.h"
#include "sluice/ops/indexing.h"
#include "sluice/ops/integer_functors.h"
#include "sluice/ops/reductions.h"

namespace sluice::cpu {
namespace {

// A reduction of integers, whose order does not matter. A task computes some results.
struct IntegerReduce {
  IntegerReduce(const OpView& op, const ops::Reduction& r)
      : lane(r.kept_dims, r.kept_strides),
        element(r.reduced_dims, r.reduced_strides),
        results(op.output(0).elements()),
        extent(r.extent),
        per_task(rows_per_task(results, extent)) {
    // The reduced elements of a result lie in runs.
    if (!r.reduced_dims.empty()) {
      run = r.reduced_dims.back();
      step = r.reduced_strides.back();
    }
  }
  explicit IntegerReduce(const OpView& op)
      : IntegerReduce(op, ops::Reduction(op.input(0).shape, op.options<ops::ReduceOptions>(),
                                         op.def().name)) {}
  int64_t tasks() const { return std::max<int64_t>(1, ceil_div(results, per_task)); }

  ops::StridedIndex lane, element;
  int64_t results, extent;
  int64_t per_task;
  int64_t run = 1, step = 1;  // Elements of a run, and the stride from one to the next.
};

template <typename F, typename E>
void reduce_integers(const IntegerReduce& r, E first, const E* x, E* y, int64_t begin,
                     int64_t end) {
  for (int64_t o = begin; o < end; ++o) {
    const E* const from = x + r.lane(o);
    E result = first;
    for (int64_t i = 0; i < r.extent; i += r.run) {
      const E* const p = from + r.element(i);
      for (int64_t j = 0; j < r.run; ++j) result = F{}(result, p[j * r.step]);
    }
    y[o] = result;
  }
}

template <typename F, typename E, E kFirst>
void run_reduction(const void* state, const runtime::KernelBlock& block, int64_t task) {
  const auto& r = *static_cast<const IntegerReduce*>(state);
  const int64_t begin = task * r.per_task, end = std::min(r.results, begin + r.per_task);
  reduce_integers<F, E>(r, kFirst, reinterpret_cast<const E*>(block.operands[0]),
                        reinterpret_cast<E*>(block.operands[1]), begin, end);
}

template <typename E>
runtime::KernelFunction reduction_of(const OpDef& def) {
  namespace integer = ops::integer;
  using Limits = std::numeric_limits<E>;
  if (&def == &ops::reduce_sum_def()) return run_reduction<integer::Add, E, E{0}>;
  if (&def == &ops::reduce_prod_def()) return run_reduction<integer::Mul, E, E{1}>;
  if (&def == &ops::reduce_max_def()) return run_reduction<integer::Max, E, Limits::min()>;
  if (&def == &ops::reduce_min_def()) return run_reduction<integer::Min, E, Limits::max()>;
  return nullptr;
}

runtime::KernelFunction reduction_of(const OpView& op) {
  if (op.inputs() != 1) return nullptr;
  const DType dtype = op.input(0).dtype;
  return dtype == i32   ? reduction_of<int32_t>(op.def())
         : dtype == u32 ? reduction_of<uint32_t>(op.def())
                        : nullptr;
}

KernelChoice choose_integer_reduce(const OpView& op) {
  const IntegerReduce r(op);
  KernelChoice choice{.tasks = r.tasks()};
  if (choice.tasks > 1) choice.task_stride = {0, r.per_task * 4};
  return choice;
}

}  // namespace

CpuKernel integer_reduce_kernel() {
  return {"cpu.integer_reduce", [](const OpView& op) { return reduction_of(op) != nullptr; },
          choose_integer_reduce,
          [](std::shared_ptr<const OpRecord> op) {
            const OpView view = op->view();
            return runtime::BoundKernel{reduction_of(view), std::make_shared<IntegerReduce>(view)};
          }};
}

}  // namespace sluice::cpu
