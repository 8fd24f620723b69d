#include <algorithm>
#include <cmath>
#include <cstring>

#include "sluice/base/checked.h"
#include "sluice/cpu/kernels/kernel_list.h"
#include "sluice/cpu/kernels/tasks.h"
#include "sluice/cpu/move/indices.h"
#include "sluice/ops/gather.h"
#include "sluice/ops/indexing.h"

namespace sluice::cpu {
namespace {

// Gathered slices or one-hot vectors. A task computes some rows of the result.
struct Gather {
  explicit Gather(const OpView& op) : width(size_of(op.output(0).dtype)) {
    one_hot = &op.def() == &ops::onehot_def();
    const TensorSpec& index_spec = op.input(one_hot ? 0 : 1);
    const std::string& name = op.def().name;
    if (one_hot) {
      const Shape& y = op.output(0).shape;
      const int64_t axis = op.options<ops::OnehotOptions>().axis;
      const ops::AxisSplit split(y, normalize_axis(axis, y.rank(), name));
      inner = split.inner;
      extent = split.extent;
      rows = split.outer;
      row_bytes = extent * inner * width;
    } else {
      const auto o = op.options<ops::GatherOptions>();
      const Shape& x = op.input(0).shape;
      const ops::AxisSplit split(x, normalize_axis(o.axis, x.rank(), name));
      inner = split.inner;
      extent = split.extent;
      rows = split.outer * index_spec.elements();
      row_bytes = inner * width;
      outside = element_outside(op.output(0).dtype, o.zero_out_of_range);
    }
    indices = Indices(index_spec, extent);
    per_task = std::max<int64_t>(
        {1, ceil_div(kTaskBytes, std::max<int64_t>(1, row_bytes)), ceil_div(rows, kMaxTasks)});
    tasks = std::max<int64_t>(1, ceil_div(rows, per_task));
  }

  bool one_hot = false;
  Indices indices;
  int64_t width;       // Bytes of an element.
  int64_t inner = 1;   // Elements after the axis.
  int64_t extent = 1;  // Elements of the axis.
  int64_t rows = 1;    // Gathered slices, or elements before the axis of one-hot vectors.
  int64_t row_bytes = 0;
  int64_t per_task = 1;
  int64_t tasks = 1;
  std::array<std::byte, 8> outside{};  // The element that an index outside yields.
};

// Fills a row with one element.
void fill(const std::byte* element, int64_t width, std::byte* to, int64_t bytes) {
  if (bytes == 0) return;
  std::memcpy(to, element, static_cast<size_t>(width));
  for (int64_t done = width; done < bytes; done *= 2)
    std::memcpy(to + done, to, static_cast<size_t>(std::min(done, bytes - done)));
}

template <int64_t kBytes>
void copy_fixed(const std::byte* from, std::byte* to, int64_t) {
  std::memcpy(to, from, kBytes);
}
void copy_any(const std::byte* from, std::byte* to, int64_t bytes) {
  std::memcpy(to, from, static_cast<size_t>(bytes));
}

template <typename Copy>
void gather_rows(const Gather& g, const runtime::KernelBlock& block, int64_t begin, int64_t end,
                 Copy copy) {
  const std::byte* const x = block.operands[0];
  const int64_t count = g.indices.count();
  std::byte* y = block.operands[2] + begin * g.row_bytes;
  int64_t outer = begin / count, i = begin % count;
  for (int64_t row = begin; row < end; ++row, y += g.row_bytes) {
    const int64_t at = g.indices.position(block.operands[1], i);
    if (at >= 0) {
      copy(x + (outer * g.extent + at) * g.row_bytes, y, g.row_bytes);
    } else {
      fill(g.outside.data(), g.width, y, g.row_bytes);
    }
    if (++i == count) {
      i = 0;
      ++outer;
    }
  }
}

void run_one_hot(const Gather& g, const runtime::KernelBlock& block, int64_t begin, int64_t end) {
  const std::byte* const values = block.operands[1];
  std::byte* const y = block.operands[2];
  fill(values, g.width, y + begin * g.row_bytes, (end - begin) * g.row_bytes);
  for (int64_t row = begin; row < end; ++row) {
    for (int64_t i = 0; i < g.inner; ++i) {
      const int64_t at = g.indices.position(block.operands[0], row * g.inner + i);
      if (at < 0) continue;
      std::memcpy(y + row * g.row_bytes + (at * g.inner + i) * g.width, values + g.width,
                  static_cast<size_t>(g.width));
    }
  }
}

void run_gather(const void* state, const runtime::KernelBlock& block, int64_t task) {
  const auto& g = *static_cast<const Gather*>(state);
  const int64_t begin = task * g.per_task, end = std::min(g.rows, begin + g.per_task);
  if (begin >= end) return;
  if (g.one_hot) return run_one_hot(g, block, begin, end);
  switch (g.row_bytes) {
    case 1:
      return gather_rows(g, block, begin, end, copy_fixed<1>);
    case 2:
      return gather_rows(g, block, begin, end, copy_fixed<2>);
    case 4:
      return gather_rows(g, block, begin, end, copy_fixed<4>);
    case 64:
      return gather_rows(g, block, begin, end, copy_fixed<64>);
    default:
      return gather_rows(g, block, begin, end, copy_any);
  }
}

}  // namespace

CpuKernel gather_kernel() {
  return {"cpu.gather",
          [](const OpView& op) {
            return &op.def() == &ops::gather_def() || &op.def() == &ops::onehot_def();
          },
          [](const OpView& op) {
            const Gather g(op);
            KernelChoice choice{.tasks = g.tasks};
            if (g.tasks > 1) choice.task_stride = {0, 0, g.per_task * g.row_bytes};
            return choice;
          },
          [](std::shared_ptr<const OpRecord> op) {
            return runtime::BoundKernel{run_gather, std::make_shared<Gather>(op->view())};
          }};
}

}  // namespace sluice::cpu
