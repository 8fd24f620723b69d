#include <algorithm>

#include "sluice/base/checked.h"
#include "sluice/cpu/kernels/kernel_list.h"
#include "sluice/cpu/kernels/tasks.h"
#include "sluice/cpu/move/strided_copy.h"
#include "sluice/cpu/simd/streaming.h"
#include "sluice/ops/reshape.h"
#include "sluice/ops/slice.h"
#include "sluice/ops/transpose.h"

namespace sluice::cpu {
namespace {

// A row-major result whose elements are those of the operand in another order: a transpose, a slice
// or a broadcast.
struct Move {
  explicit Move(const OpView& op) {
    const int64_t width = size_of(op.output(0).dtype);
    copy = StridedCopy(axes_of(op, width), width);
    streams = is_streamed(copy.bytes(), 0);
    const int64_t units = ceil_div(kTaskBytes, std::max<int64_t>(1, copy.unit_bytes()));
    per_task = round_up(std::max(units, ceil_div(copy.units(), kMaxTasks)), copy.grain());
    tasks = std::max<int64_t>(1, ceil_div(copy.units(), per_task));
  }

  static bool is_transpose(const OpDef& def) {
    return &def == &ops::transpose_def() || &def == &ops::transpose_in_place_def();
  }
  static bool is_slice(const OpDef& def) {
    return &def == &ops::slice_def() || &def == &ops::slice_in_place_def();
  }
  static bool is_broadcast(const OpDef& def) { return &def == &ops::broadcast_to_def(); }

  // The axes of the result with their steps in the operand. Sets `begin`.
  std::vector<CopyAxis> axes_of(const OpView& op, int64_t width) {
    const Shape &x = op.input(0).shape, &y = op.output(0).shape;
    const std::vector<int64_t> from = byte_strides(x, width), to = byte_strides(y, width);
    std::vector<CopyAxis> axes;
    for (size_t a = 0; a < to.size(); ++a) axes.push_back({y.dims()[a], 0, to[a]});
    if (is_transpose(op.def())) {
      const auto o = op.options<ops::TransposeOptions>();
      for (size_t a = 0; a < axes.size(); ++a)
        axes[a].from = from[static_cast<size_t>(o.permutation[a])];
    } else if (is_slice(op.def())) {
      const auto o = op.options<ops::SliceOptions>();
      for (size_t a = 0; a < axes.size(); ++a) {
        begin += o.starts[a] * from[a];
        axes[a].from = axes[a].size > 1 ? o.steps[a] * from[a] : 0;
      }
    } else {
      const size_t lead = axes.size() - from.size();
      for (size_t a = 0; a < from.size(); ++a) axes[a + lead].from = x.dims()[a] == 1 ? 0 : from[a];
    }
    return axes;
  }

  StridedCopy copy;
  int64_t begin = 0;  // Offset of the operand's first element.
  bool streams = false;
  int64_t per_task = 0;
  int64_t tasks = 1;
};

void run_move(const void* state, const runtime::KernelBlock& block, int64_t task) {
  const auto& m = *static_cast<const Move*>(state);
  const int64_t begin = task * m.per_task, end = std::min(m.copy.units(), begin + m.per_task);
  m.copy.run(block.operands[0] + m.begin, block.operands[1], begin, end, m.streams);
  if (m.streams) finish_streams();
}

}  // namespace

CpuKernel move_kernel() {
  return {"cpu.move",
          [](const OpView& op) {
            return Move::is_transpose(op.def()) || Move::is_slice(op.def()) ||
                   Move::is_broadcast(op.def());
          },
          [](const OpView& op) {
            const Move m(op);
            KernelChoice choice{.tasks = m.tasks};
            if (m.tasks > 1) choice.task_stride = {0, m.per_task * m.copy.unit_bytes()};
            return choice;
          },
          [](std::shared_ptr<const OpRecord> op) {
            return runtime::BoundKernel{run_move, std::make_shared<Move>(op->view())};
          }};
}

}  // namespace sluice::cpu
