#include <algorithm>
#include <cmath>

#include "sluice/base/checked.h"
#include "sluice/base/reduce.h"
#include "sluice/cpu/kernels/kernel_list.h"
#include "sluice/cpu/kernels/tasks.h"
#include "sluice/cpu/reduce/reduce.h"
#include "sluice/ops/reduction_chunks.h"

namespace sluice::cpu {
namespace {

// Reduces each chunk of an operand, or combines the results of all chunks.
struct Chunks {
  explicit Chunks(const OpView& op) : elements(op.input(0).elements()) {
    if (&op.def() == &ops::reduce_chunks_def()) {
      to = reduce_op(op.options<ops::ReduceChunksOptions>().to);
      chunks = ceil_div(elements, kReduceChunk);
      per_task = std::max<int64_t>(1, ceil_div(chunks, kMaxTasks));
      return;
    }
    const auto o = op.options<ops::ReduceTotalOptions>();
    to = reduce_op(ops::combination_of_chunks(o.to));
    finish = o.finish;
    count = o.count;
  }

  static ReduceOp reduce_op(ops::Combination to) {
    static constexpr ReduceOp kOps[] = {ReduceOp::kSum,
                                        ReduceOp::kSumSquare,
                                        ReduceOp::kL1,
                                        ReduceOp::kMax,
                                        ReduceOp::kMin,
                                        ReduceOp::kProd,
                                        ReduceOp::kSumSquareExtended,
                                        ReduceOp::kSumExtended};
    return at(kOps, to);
  }

  int64_t elements;
  ReduceOp to = ReduceOp::kSum;
  int64_t chunks = 1;
  int64_t per_task = 1;
  ops::Finish finish = ops::Finish::kKeep;
  int64_t count = 0;
};

bool supports_chunks(const OpView& op) {
  const bool known =
      &op.def() == &ops::reduce_chunks_def() || &op.def() == &ops::reduce_total_def();
  return known && op.input(0).dtype == f32;
}

void run_chunks(const void* state, const runtime::KernelBlock& block, int64_t task) {
  const auto& c = *static_cast<const Chunks*>(state);
  const auto* const x = reinterpret_cast<const float*>(block.operands[0]);
  auto* const y = reinterpret_cast<float*>(block.operands[1]);
  const int64_t end = std::min(c.chunks, (task + 1) * c.per_task);
  for (int64_t chunk = task * c.per_task; chunk < end; ++chunk) {
    const int64_t first = chunk * kReduceChunk;
    const int64_t n = std::min(kReduceChunk, c.elements - first);
    reduce_rows(c.to, x + first, 1, n, n, y + chunk);
  }
}

void run_chunks_total(const void* state, const runtime::KernelBlock& block, int64_t) {
  const auto& c = *static_cast<const Chunks*>(state);
  auto* const y = reinterpret_cast<float*>(block.operands[1]);
  reduce_rows(c.to, reinterpret_cast<const float*>(block.operands[0]), 1, c.elements, c.elements,
              y);
  if (c.finish == ops::Finish::kDivide) *y = *y / static_cast<float>(c.count);
  if (c.finish == ops::Finish::kRoot) *y = std::sqrt(*y);
}

KernelChoice choose_chunks(const OpView& op) {
  const Chunks c(op);
  KernelChoice choice;
  choice.tasks = std::max<int64_t>(1, ceil_div(c.chunks, c.per_task));
  if (choice.tasks > 1) choice.task_stride = {c.per_task * kReduceChunk * 4, c.per_task * 4};
  return choice;
}

}  // namespace

CpuKernel chunks_kernel() {
  return {"cpu.chunks", supports_chunks, choose_chunks, [](std::shared_ptr<const OpRecord> op) {
            const OpView view = op->view();
            const bool total = &view.def() == &ops::reduce_total_def();
            return runtime::BoundKernel{total ? run_chunks_total : run_chunks,
                                        std::make_shared<Chunks>(view)};
          }};
}

}  // namespace sluice::cpu
