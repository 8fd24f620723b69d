#include <algorithm>

#include "sluice/base/checked.h"
#include "sluice/cpu/kernels/kernel_list.h"
#include "sluice/cpu/kernels/tasks.h"
#include "sluice/cpu/simd/conversions.h"
#include "sluice/cpu/simd/streaming.h"
#include "sluice/ops/cast.h"
#include "sluice/ops/updates.h"

namespace sluice::cpu {
namespace {

// Elements of the stack buffers, used to convert between two narrow dtypes or to stream the result.
constexpr int64_t kCastBlock = 512;

struct Cast {
  explicit Cast(const OpView& op)
      : from(op.inputs() - 1),
        to(op.inputs()),
        from_size(size_of(op.input(from).dtype)),
        to_size(size_of(op.output(0).dtype)),
        elements(op.output(0).elements()),
        per_task(round_up(std::max(kTaskElements, ceil_div(elements, kMaxTasks)), 64)),
        tasks(std::max<int64_t>(1, ceil_div(elements, per_task))) {
    const DType source = op.input(from).dtype;
    const DType result = op.output(0).dtype;
    if (source == result) return;
    if (source != f32) widen = widen_kernel(source);
    if (result != f32) narrow = narrow_kernel(result);
  }

  int from, to;  // Operand indices.
  int64_t from_size, to_size;
  int64_t elements;
  int64_t per_task;
  int64_t tasks;
  WidenFn widen = nullptr;    // Null if the source is f32 or both dtypes are equal.
  NarrowFn narrow = nullptr;  // Null if the result is f32 or both dtypes are equal.
};

void run_cast(const void* state, const runtime::KernelBlock& block, int64_t task) {
  const Cast& c = *static_cast<const Cast*>(state);
  const int64_t begin = task * c.per_task;
  const int64_t n = std::min(c.per_task, c.elements - begin);
  const std::byte* const from = block.operands[c.from] + begin * c.from_size;
  std::byte* const to = block.operands[c.to] + begin * c.to_size;
  if (c.widen == nullptr && c.narrow == nullptr) {
    if (from != to) std::copy_n(from, n * c.to_size, to);
    return;
  }
  const bool streams = is_streamed(c.elements * c.to_size, 0) && from != to;
  if (!streams && c.widen == nullptr) return c.narrow(reinterpret_cast<const float*>(from), to, n);
  if (!streams && c.narrow == nullptr) return c.widen(from, reinterpret_cast<float*>(to), n);
  alignas(64) float floats[kCastBlock];
  alignas(64) std::byte narrowed[kCastBlock * sizeof(float)];
  const int64_t max = streams ? kStreamedBlock : kCastBlock;
  for (int64_t i = 0; i < n; i += max) {
    const int64_t count = std::min(max, n - i);
    const std::byte* const part = from + i * c.from_size;
    std::byte* const result = to + i * c.to_size;
    if (streams) prefetch_ahead(part, count * c.from_size);
    if (c.widen != nullptr) c.widen(part, floats, count);
    std::byte* block = reinterpret_cast<std::byte*>(floats);
    if (c.narrow != nullptr) {
      block = streams ? narrowed : result;
      c.narrow(c.widen != nullptr ? floats : reinterpret_cast<const float*>(part), block, count);
    }
    if (streams) stream(block, result, count * c.to_size);
  }
  if (streams) finish_streams();
}

// Returns whether the op is a cast from or to floating point, or a copy into a variable.
bool supports_cast(const OpView& op) {
  if (&op.def() == &ops::copy_var_update_def()) return true;
  return &op.def() == &ops::cast_def() &&
         (is_float(op.input(0).dtype) || is_float(op.output(0).dtype));
}

KernelChoice choose_cast(const OpView& op) {
  const Cast c(op);
  KernelChoice choice;
  choice.tasks = c.tasks;
  choice.task_stride.assign(static_cast<size_t>(c.to) + 1, c.per_task * c.to_size);
  at(choice.task_stride, c.from) = c.per_task * c.from_size;
  return choice;
}

}  // namespace

CpuKernel cast_kernel() {
  return {"cpu.cast", supports_cast, choose_cast, [](std::shared_ptr<const OpRecord> op) {
            return runtime::BoundKernel{run_cast, std::make_shared<Cast>(op->view())};
          }};
}

}  // namespace sluice::cpu
