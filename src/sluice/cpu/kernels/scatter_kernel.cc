#include <algorithm>
#include <cstring>

#include "sluice/base/checked.h"
#include "sluice/cpu/kernels/kernel_list.h"
#include "sluice/cpu/kernels/tasks.h"
#include "sluice/cpu/move/indices.h"
#include "sluice/cpu/simd/conversions.h"
#include "sluice/cpu/simd/vector_kernels.h"
#include "sluice/ops/functors.h"
#include "sluice/ops/gather.h"
#include "sluice/ops/hyper_rules.h"
#include "sluice/ops/indexing.h"
#include "sluice/ops/sparse_accumulate.h"
#include "sluice/ops/update_functors.h"

namespace sluice::cpu {
namespace {

// Adds slices to a tensor, or to zeros, where indices tell, in the order of the indices. A task
// has some rows of the tensor, and reads all indices.
struct ScatterAdd {
  explicit ScatterAdd(const OpView& op) : zeros(&op.def() == &ops::gather_grad_def()) {
    const TensorSpec& t = op.output(0);
    int64_t axis = 0;
    if (zeros) {
      axis = op.options<ops::GatherGradOptions>().axis;
    } else {
      axis = op.options<ops::SparseAccumulateOptions>().axis;
      factor = ops::hypers_of(op)[0];
      if (factor.operand >= 0) widen = widen_kernel(op.input(factor.operand).dtype);
    }
    const ops::AxisSplit split(t.shape, normalize_axis(axis, t.shape.rank(), op.def().name));
    extent = split.extent;
    indices = Indices(op.input(zeros ? 1 : 2), extent);
    inner = split.inner;
    rows = split.outer * split.extent;
    per_task = rows_per_task(rows, inner);
    tasks = std::max<int64_t>(1, ceil_div(rows, per_task));
    // Reading the indices must cost little compared with adding the slices.
    if (inner < kMinInner) {
      per_task = std::max<int64_t>(1, rows);
      tasks = 1;
    }
  }

  static constexpr int64_t kMinInner = 16;
  bool zeros;
  Indices indices;
  int64_t extent = 1;  // Elements of the axis.
  int64_t inner = 1;   // Elements after the axis.
  int64_t rows = 1;    // Rows of the tensor: elements before the axis times those of the axis.
  ops::Hyper factor;
  WidenFn widen = nullptr;  // Reads a factor from an operand.
  int64_t per_task = 1;
  int64_t tasks = 1;
};

// Calls add(slice, row) for each slice whose row is in [begin, end), in order.
template <typename Add>
void for_each_slice(const ScatterAdd& s, const std::byte* indices, int64_t begin, int64_t end,
                    Add add) {
  if (begin >= end) return;
  const int64_t count = s.indices.count();
  for (int64_t outer = begin / s.extent; outer * s.extent < end; ++outer) {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t at = s.indices.position(indices, i), row = outer * s.extent + at;
      if (at >= 0 && row >= begin && row < end) add(outer * count + i, row);
    }
  }
}

void run_scatter(const void* state, const runtime::KernelBlock& block, int64_t task) {
  const auto& s = *static_cast<const ScatterAdd*>(state);
  const int64_t begin = task * s.per_task, end = std::min(s.rows, begin + s.per_task);
  const std::byte* const old = s.zeros ? nullptr : block.operands[0];
  const auto* const x = reinterpret_cast<const float*>(block.operands[s.zeros ? 0 : 1]);
  const std::byte* const indices = block.operands[s.zeros ? 1 : 2];
  const int operands = s.zeros ? 2 : s.factor.operand >= 0 ? 4 : 3;
  std::byte* const result = block.operands[operands];
  auto* const t = reinterpret_cast<float*>(result);
  const auto bytes = static_cast<size_t>((end - begin) * s.inner) * sizeof(float);
  const int64_t at = begin * s.inner * static_cast<int64_t>(sizeof(float));
  if (s.zeros) {
    std::memset(result + at, 0, bytes);
    return for_each_slice(s, indices, begin, end, [&](int64_t slice, int64_t row) {
      float* const to = t + row * s.inner;
      map2(ops::functor::Add{}, {to}, {x + slice * s.inner}, to, s.inner);
    });
  }
  if (old != result) std::memcpy(result + at, old + at, bytes);
  auto f = static_cast<float>(s.factor.value);
  if (s.widen != nullptr) s.widen(block.operands[s.factor.operand], &f, 1);
  const ops::functor::AccumulateAdd add{f};
  for_each_slice(s, indices, begin, end, [&](int64_t slice, int64_t row) {
    float* const to = t + row * s.inner;
    map2(add, {to}, {x + slice * s.inner}, to, s.inner);
  });
}

bool supports_scatter(const OpView& op) {
  const bool sparse = &op.def() == &ops::sparse_accumulate_def();
  if (!sparse && &op.def() != &ops::gather_grad_def()) return false;
  return op.output(0).dtype == f32 && op.input(0).dtype == f32 &&
         (!sparse || op.input(1).dtype == f32);
}

KernelChoice choose_scatter(const OpView& op) {
  const ScatterAdd s(op);
  KernelChoice choice{.tasks = s.tasks};
  if (s.tasks == 1) return choice;
  const int64_t stride = s.per_task * s.inner * 4;
  choice.task_stride.assign(static_cast<size_t>(op.inputs()), 0);
  if (!s.zeros) choice.task_stride[0] = stride;
  choice.task_stride.push_back(stride);
  return choice;
}

}  // namespace

CpuKernel scatter_kernel() {
  return {"cpu.scatter", supports_scatter, choose_scatter, [](std::shared_ptr<const OpRecord> op) {
            return runtime::BoundKernel{run_scatter, std::make_shared<ScatterAdd>(op->view())};
          }};
}

}  // namespace sluice::cpu
