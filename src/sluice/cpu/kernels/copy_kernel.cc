#include <algorithm>

#include "sluice/base/checked.h"
#include "sluice/cpu/gemm/panels.h"
#include "sluice/cpu/kernels/kernel_list.h"
#include "sluice/cpu/kernels/tasks.h"
#include "sluice/cpu/layout/layouts.h"

namespace sluice::cpu {
namespace {

constexpr int64_t kTaskCopies = 16384;

// A copy within one layout copies all bytes in one task. A task of a conversion has whole panels,
// or some output channels of a weight.
struct Copy {
  Copy(const TensorSpec& spec, const Layout& from, const Layout& to)
      : bytes(buffer_bytes(spec, from)), converts(from != to), into_panels(panel_width(to) > 0) {
    if (!converts) return;
    SLUICE_CHECK(from.is_row_major() || to.is_row_major());
    taps = from == in_taps() || to == in_taps();
    if (taps) {
      into_taps = to == in_taps();
      out = spec.shape[0];
      in = spec.shape[1];
      row = spec.elements() / out;
      per_task = std::max({ceil_div(kTaskCopies, row), ceil_div(out, kMaxTasks), int64_t{16}});
      tasks = ceil_div(out, per_task);
      return;
    }
    panels = {spec.shape[0], spec.shape[1], panel_width(into_panels ? to : from)};
    per_task =
        std::max(ceil_div(kTaskCopies, panels.stride()), ceil_div(panels.count(), kMaxTasks));
    tasks = ceil_div(panels.count(), per_task);
  }

  int64_t bytes;
  bool converts;
  bool into_panels;
  bool taps = false, into_taps = false;
  int64_t out = 0, in = 0, row = 0;  // Channels of a weight, and the elements of an output channel.
  Panels panels;
  int64_t per_task = 0;
  int64_t tasks = 1;
};

// Copies some output channels of a weight between (out, in, taps) and (taps, in, out).
void convert_taps(const Copy& c, const float* from, float* to, int64_t begin, int64_t end) {
  const int64_t count = c.row / c.in;
  for (int64_t tap = 0; tap < count; ++tap) {
    for (int64_t i = 0; i < c.in; ++i) {
      const int64_t in_row = i * count + tap, in_taps = (tap * c.in + i) * c.out;
      for (int64_t o = begin; o < end; ++o) {
        if (c.into_taps) {
          to[in_taps + o] = from[o * c.row + in_row];
        } else {
          to[o * c.row + in_row] = from[in_taps + o];
        }
      }
    }
  }
}

void run_copy(const void* state, const runtime::KernelBlock& block, int64_t task) {
  const auto& c = *static_cast<const Copy*>(state);
  if (!c.converts) {
    std::copy_n(block.operands[0], c.bytes, block.operands[1]);
    return;
  }
  const auto* const from = reinterpret_cast<const float*>(block.operands[0]);
  auto* const to = reinterpret_cast<float*>(block.operands[1]);
  if (c.taps) {
    const int64_t begin = task * c.per_task;
    return convert_taps(c, from, to, begin, std::min(c.out, begin + c.per_task));
  }
  PanelRange range = everything(c.panels);
  range.panel_begin = task * c.per_task;
  range.panel_end = std::min(range.panel_end, range.panel_begin + c.per_task);
  if (c.into_panels) {
    to_panels(from, c.panels.cols, c.panels, range, to);
  } else {
    from_panels(from, c.panels, range, to, c.panels.cols);
  }
}

}  // namespace

KernelChoice choose_copy_kernel(const TensorSpec& spec, const Layout& from, const Layout& to) {
  const Copy c(spec, from, to);
  KernelChoice choice{.key = "cpu.copy", .tasks = c.tasks};
  if (!c.converts) return choice;
  if (c.taps) {
    const int64_t rows = c.per_task * c.row * 4, columns = c.per_task * 4;
    choice.task_stride = {rows, columns};
    choice.task_pitch = {0, c.out * 4};
    if (!c.into_taps) {
      std::swap(choice.task_stride[0], choice.task_stride[1]);
      std::swap(choice.task_pitch[0], choice.task_pitch[1]);
    }
    return choice;
  }
  const int64_t row_stride = c.per_task * c.panels.width * 4;
  const int64_t panel_stride = c.per_task * c.panels.stride() * 4;
  const int64_t pitch = c.panels.cols * 4;
  if (c.into_panels) {
    choice.task_stride = {row_stride, panel_stride};
    choice.task_pitch = {pitch, 0};
  } else {
    choice.task_stride = {panel_stride, row_stride};
    choice.task_pitch = {0, pitch};
  }
  return choice;
}

runtime::BoundKernel bind_copy_kernel(const TensorSpec& spec, const Layout& from,
                                      const Layout& to) {
  return {run_copy, std::make_shared<Copy>(spec, from, to)};
}

}  // namespace sluice::cpu
