#include <cstring>

#include "sluice/base/checked.h"
#include "sluice/cpu/gemm/panel_layout.h"
#include "sluice/cpu/gemm/panels.h"
#include "sluice/cpu/kernels/kernel_list.h"
#include "sluice/cpu/kernels/tasks.h"

namespace sluice::cpu {
namespace {

constexpr int64_t kTaskCopies = 16384;

// A copy within one layout copies all bytes in one task. A task of a conversion has whole panels.
struct Copy {
  Copy(const TensorSpec& spec, const Layout& from, const Layout& to)
      : bytes(buffer_bytes(spec, from)), converts(from != to), into_panels(panel_width(to) > 0) {
    if (!converts) return;
    SLUICE_CHECK(from.is_row_major() || to.is_row_major());
    panels = {spec.shape[0], spec.shape[1], panel_width(into_panels ? to : from)};
    per_task =
        std::max(ceil_div(kTaskCopies, panels.stride()), ceil_div(panels.count(), kMostTasks));
    tasks = ceil_div(panels.count(), per_task);
  }

  int64_t bytes;
  bool converts;
  bool into_panels;
  Panels panels;
  int64_t per_task = 0;
  int64_t tasks = 1;
};

void run(const void* state, const runtime::KernelBlock& block, int64_t task) {
  const auto& c = *static_cast<const Copy*>(state);
  if (!c.converts) {
    std::memcpy(block.operands[1], block.operands[0], static_cast<size_t>(c.bytes));
    return;
  }
  PanelRange range = everything(c.panels);
  range.panel_begin = task * c.per_task;
  range.panel_end = std::min(range.panel_end, range.panel_begin + c.per_task);
  const auto* const from = reinterpret_cast<const float*>(block.operands[0]);
  auto* const to = reinterpret_cast<float*>(block.operands[1]);
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
  return {run, std::make_shared<Copy>(spec, from, to), 0};
}

}  // namespace sluice::cpu
