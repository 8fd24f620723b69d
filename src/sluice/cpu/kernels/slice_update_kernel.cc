#include <algorithm>
#include <cstring>

#include "sluice/base/checked.h"
#include "sluice/cpu/kernels/kernel_list.h"
#include "sluice/cpu/kernels/tasks.h"
#include "sluice/cpu/move/indices.h"
#include "sluice/cpu/move/strided_copy.h"
#include "sluice/ops/slice.h"

namespace sluice::cpu {
namespace {

// Writes y over a slice of a tensor, or over a slice of zeros. A task writes some indices of the
// tensor's first axis.
struct SliceUpdate {
  explicit SliceUpdate(const OpView& op) : zeros(&op.def() == &ops::slice_grad_def()) {
    if (zeros) {
      const auto o = op.options<ops::SliceGradOptions>();
      describe(op.output(0), o.starts, o.sizes, o.steps);
    } else {
      const auto o = op.options<ops::SliceOptions>();
      describe(op.output(0), o.starts, o.sizes, o.steps);
    }
  }

  void describe(const TensorSpec& t, const std::vector<int64_t>& starts,
                const std::vector<int64_t>& sizes, const std::vector<int64_t>& steps) {
    const int64_t width = size_of(t.dtype);
    const std::vector<int64_t> to = byte_strides(t.shape, width);
    const std::vector<int64_t> from = byte_strides(Shape(sizes), width);
    size_t first = 0;
    while (first + 1 < to.size() && t.shape.dims()[first] == 1 && sizes[first] == 1) ++first;
    std::vector<CopyAxis> axes;
    for (size_t a = first; a < to.size(); ++a) {
      const int64_t step = sizes[a] > 1 ? steps[a] : 0;
      axes.push_back({sizes[a], from[a], step * to[a]});
      offset += starts[a] * to[a];
    }
    bytes = t.bytes();
    if (!to.empty()) {
      index_bytes = to[first];
      extent = t.shape.dims()[first];
      start = starts[first];
      size = sizes[first];
      step = size > 1 ? steps[first] : 1;
    }
    copy = StridedCopy(std::move(axes), width);
    units = copy.units() / std::max<int64_t>(1, size);
    per_task = std::max({ceil_div(kTaskBytes, std::max<int64_t>(1, index_bytes)),
                         ceil_div(extent, kMaxTasks), int64_t{1}});
    tasks = std::max<int64_t>(1, ceil_div(extent, per_task));
  }

  // Copies the rows of y that are written to the indices [begin, end) of the first axis: row r to
  // index start + r · step.
  void copy_rows(const std::byte* y, std::byte* t, int64_t begin, int64_t end) const {
    const int64_t low = step > 0 ? begin - start : start - end + 1;
    const int64_t high = step > 0 ? end - start : start - begin + 1;
    const int64_t stride = step > 0 ? step : -step;
    const int64_t first = low <= 0 ? 0 : ceil_div(low, stride);
    const int64_t last = high <= 0 ? 0 : std::min(size, ceil_div(high, stride));
    copy.run(y, t + offset, first * units, last * units);
  }

  bool zeros;
  StridedCopy copy;
  int64_t units = 0;  // Units of the copy for each row of y.
  int64_t bytes = 0;  // Bytes of the tensor, and of an index of its first axis.
  int64_t index_bytes = 0;
  int64_t offset = 0;  // Bytes from the tensor to the first element of the slice.
  int64_t extent = 1;
  int64_t start = 0, size = 1, step = 1;
  int64_t per_task = 1;
  int64_t tasks = 1;
};

void run_slice_update(const void* state, const runtime::KernelBlock& block, int64_t task) {
  const auto& s = *static_cast<const SliceUpdate*>(state);
  const std::byte* const old = s.zeros ? nullptr : block.operands[0];
  const std::byte* const y = block.operands[s.zeros ? 0 : 1];
  std::byte* const t = block.operands[s.zeros ? 1 : 2];
  const int64_t index_bytes = s.extent == 1 ? s.bytes : s.index_bytes;
  // Blocks that stay in the caches until the slice is written.
  const int64_t at_once = std::max<int64_t>(1, kTaskBytes / std::max<int64_t>(1, index_bytes));
  const int64_t end = std::min(s.extent, (task + 1) * s.per_task);
  for (int64_t begin = task * s.per_task; begin < end; begin += at_once) {
    const int64_t next = std::min(end, begin + at_once);
    const auto part = static_cast<size_t>((next - begin) * index_bytes);
    std::byte* const to = t + begin * index_bytes;
    if (s.zeros) {
      std::memset(to, 0, part);
    } else if (old != t) {
      std::memcpy(to, old + begin * index_bytes, part);
    }
    s.copy_rows(y, t, begin, next);
  }
}

KernelChoice choose_slice_update(const OpView& op) {
  const SliceUpdate s(op);
  KernelChoice choice{.tasks = s.tasks};
  if (s.tasks == 1) return choice;
  const int64_t stride = s.per_task * s.index_bytes;
  choice.task_stride =
      s.zeros ? std::vector<int64_t>{0, stride} : std::vector<int64_t>{stride, 0, stride};
  return choice;
}

// Writes y over the row of a tensor that an operand names. A task writes some bytes of each row.
struct RowUpdate {
  explicit RowUpdate(const OpView& op)
      : index(op.input(2), op.output(0).shape.dims()[0]),
        rows(op.output(0).shape.dims()[0]),
        row_bytes(op.input(1).bytes()) {
    const int64_t width = size_of(op.output(0).dtype);
    per_task = ceil_div(std::max(kTaskBytes, ceil_div(row_bytes, kMaxTasks)), width) * width;
    tasks = std::max<int64_t>(1, ceil_div(row_bytes, per_task));
  }

  Indices index;
  int64_t rows;
  int64_t row_bytes;
  int64_t per_task = 1;
  int64_t tasks = 1;
};

void run_row_update(const void* state, const runtime::KernelBlock& block, int64_t task) {
  const auto& s = *static_cast<const RowUpdate*>(state);
  const std::byte* const old = block.operands[0];
  std::byte* const t = block.operands[3];
  const int64_t begin = task * s.per_task;
  const auto part = static_cast<size_t>(std::min(s.per_task, s.row_bytes - begin));
  if (part == 0) return;
  const int64_t row = s.index.position(block.operands[2], 0);
  for (int64_t r = 0; old != t && r < s.rows; ++r) {
    if (r != row) std::memcpy(t + r * s.row_bytes + begin, old + r * s.row_bytes + begin, part);
  }
  if (row >= 0) std::memcpy(t + row * s.row_bytes + begin, block.operands[1] + begin, part);
}

// Makes no definition of an operator that few programs need.
bool is_row_update(const OpView& op) { return op.def().type == "RowUpdateInplace"; }

KernelChoice choose_update(const OpView& op) {
  if (!is_row_update(op)) return choose_slice_update(op);
  const RowUpdate s(op);
  KernelChoice choice{.tasks = s.tasks};
  if (s.tasks == 1) return choice;
  choice.task_stride = {s.per_task, s.per_task, 0, s.per_task};
  choice.task_pitch = {s.row_bytes, 0, 0, s.row_bytes};
  return choice;
}

}  // namespace

CpuKernel slice_update_kernel() {
  return {
      "cpu.slice_update",
      [](const OpView& op) {
        return &op.def() == &ops::slice_grad_def() || &op.def() == &ops::update_slice_def() ||
               is_row_update(op);
      },
      choose_update,
      [](std::shared_ptr<const OpRecord> op) {
        if (is_row_update(op->view()))
          return runtime::BoundKernel{run_row_update, std::make_shared<RowUpdate>(op->view())};
        return runtime::BoundKernel{run_slice_update, std::make_shared<SliceUpdate>(op->view())};
      }};
}

}  // namespace sluice::cpu
