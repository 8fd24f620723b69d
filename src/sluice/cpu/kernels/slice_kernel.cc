#include <algorithm>

#include "sluice/base/checked.h"
#include "sluice/cpu/kernels/kernel_list.h"
#include "sluice/cpu/kernels/tasks.h"
#include "sluice/ops/slice.h"

namespace sluice::cpu {
namespace {

constexpr int64_t kTaskBytes = 65536;

// A slice. If its elements are contiguous in the operand (`side_by_side`), it is a copy of bytes.
struct Slice {
  explicit Slice(const OpView& op) {
    const TensorSpec& x = op.input(0);
    const auto o = op.options<ops::SliceOptions>();
    const auto strides = x.shape.strides();
    const int64_t size = size_of(x.dtype);
    bytes = op.output(0).elements() * size;
    per_task = round_up(std::max(kTaskBytes, ceil_div(bytes, kMaxTasks)), 64);
    tasks = std::max<int64_t>(1, ceil_div(bytes, per_task));
    bool whole = true;  // The slice covers all later axes completely.
    for (size_t a = strides.size(); a-- > 0;) {
      begin += o.starts[a] * strides[a] * size;
      side_by_side &= o.sizes[a] <= 1 || (whole && o.steps[a] == 1);
      whole &= o.sizes[a] == x.shape[static_cast<int>(a)];
    }
  }

  int64_t begin = 0;
  int64_t bytes = 0;
  int64_t per_task = 0;
  int64_t tasks = 1;
  bool side_by_side = true;
};

void run_slice(const void* state, const runtime::KernelBlock& block, int64_t task) {
  const auto& s = *static_cast<const Slice*>(state);
  const int64_t at = task * s.per_task;
  const int64_t count = std::min(s.per_task, s.bytes - at);
  if (count > 0) std::copy_n(block.operands[0] + s.begin + at, count, block.operands[1] + at);
}

}  // namespace

CpuKernel slice_kernel() {
  return {"cpu.slice",
          [](const OpView& op) {
            const bool slices =
                &op.def() == &ops::slice_def() || &op.def() == &ops::slice_in_place_def();
            return slices && Slice(op).side_by_side;
          },
          [](const OpView& op) {
            const Slice s(op);
            KernelChoice choice{.tasks = s.tasks};
            if (s.tasks > 1) choice.task_stride = {0, s.per_task};
            return choice;
          },
          [](std::shared_ptr<const OpRecord> op) {
            return runtime::BoundKernel{run_slice, std::make_shared<Slice>(op->view())};
          }};
}

}  // namespace sluice::cpu
