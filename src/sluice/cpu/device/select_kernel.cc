#include "sluice/cpu/device/select_kernel.h"

#include <algorithm>

#include "sluice/base/checked.h"
#include "sluice/cpu/simd/conversions.h"
#include "sluice/ops/flops.h"

namespace sluice::cpu {
namespace {

// Flops that are worth widening an element once more.
constexpr double kFlopsPerElement = 8;

bool is_narrow(DType dtype) { return dtype == f16 || dtype == bf16; }

bool reads_or_writes_narrow(const OpView& op) {
  for (int i = 0; i < op.inputs(); ++i) {
    if (is_narrow(op.input(i).dtype)) return true;
  }
  for (int i = 0; i < op.outputs(); ++i) {
    if (is_narrow(op.output(i).dtype)) return true;
  }
  return false;
}

// Returns the op with f32 instead of f16 and bf16.
OpRecord widened(const OpView& op) {
  OpRecord record{&op.def(), op.attrs(), {}, {}};
  const auto add = [](std::vector<TensorSpec>& specs, TensorSpec spec) {
    if (is_narrow(spec.dtype)) spec.dtype = f32;
    specs.push_back(std::move(spec));
  };
  for (int i = 0; i < op.inputs(); ++i) add(record.inputs, op.input(i));
  for (int i = 0; i < op.outputs(); ++i) add(record.outputs, op.output(i));
  return record;
}

int64_t number(const std::vector<int64_t>& list, int i) { return list.empty() ? 0 : at(list, i); }

// An operand of f16 or bf16 and its copy in f32.
struct Copy {
  int operand = 0;
  bool is_input = false;
  Element element;
  int64_t elements = 0;
  // Elements from task to task, and of a row if a task has a part of each row. A stride of 0: each
  // task has all elements.
  int64_t stride = 0, pitch = 0;
  int64_t begin = 0;  // Offset of the copy in the workspace.

  bool is_part() const { return stride != 0 && pitch == 0; }
  int64_t copied() const { return is_part() ? std::min(stride, elements) : elements; }
};

// A kernel of f32 that runs an op of f16 or bf16.
struct Widened {
  Widened(const CpuKernel& kernel, const OpView& op);
  KernelChoice narrow_choice() const;

  OpRecord record;      // The op on f32.
  KernelChoice choice;  // The kernel's choice for it.
  int64_t tasks = 1;
  int operands = 0;
  std::vector<Copy> copies;
  int64_t pointers = 0;   // Offset in the workspace of the operands' addresses.
  int64_t workspace = 0;  // Offset in the workspace of the kernel's own.
  runtime::BoundKernel kernel;
};

Widened::Widened(const CpuKernel& f32_kernel, const OpView& op)
    : record(widened(op)), choice(f32_kernel.choose(record.view())) {
  operands = op.inputs() + op.outputs();
  int64_t read_by_all = 0, elements = 0;
  for (int i = 0; i < operands; ++i) {
    const bool is_input = i < op.inputs();
    const TensorSpec& spec = is_input ? op.input(i) : op.output(i - op.inputs());
    if (!is_narrow(spec.dtype)) continue;
    Copy c{.operand = i, .is_input = is_input, .element = element_of(spec.dtype)};
    c.elements = spec.elements();
    c.stride = number(choice.task_stride, i) / 4;
    c.pitch = number(choice.task_pitch, i) / 4;
    elements += c.elements;
    if (c.stride == 0) read_by_all += c.elements;
    copies.push_back(c);
  }
  tasks = choice.tasks;
  const double worth =
      std::max(2.0 * static_cast<double>(elements), flops_of(record.view()) / kFlopsPerElement);
  if (static_cast<double>(read_by_all) * static_cast<double>(tasks) > worth) tasks = 1;
  for (Copy& c : copies) {
    if (tasks == 1) c.stride = c.pitch = 0;
    c.begin = pointers;
    pointers += round_up(c.copied() * 4, 64);
  }
  workspace = pointers + round_up(static_cast<int64_t>(sizeof(void*)) * operands, 64);
}

KernelChoice Widened::narrow_choice() const {
  KernelChoice narrow = choice;
  narrow.tasks = tasks;
  narrow.workspace_bytes += workspace;
  if (tasks == 1) {
    narrow.task_stride.clear();
    narrow.task_pitch.clear();
  }
  for (const Copy& c : copies) {
    for (auto* const bytes : {&narrow.task_stride, &narrow.task_pitch}) {
      if (!bytes->empty()) at(*bytes, c.operand) = at(*bytes, c.operand) / 4 * c.element.size;
    }
  }
  return narrow;
}

// Calls convert(stored, copy, n) for each run of elements of the task.
template <typename Convert>
void for_each_run(const Copy& c, std::byte* stored, std::byte* copy, int64_t task,
                  Convert convert) {
  const int64_t rows = c.pitch == 0 ? 1 : c.elements / c.pitch;
  const int64_t row = c.pitch == 0 ? c.elements : c.pitch;
  const int64_t first = task * c.stride;
  const int64_t end = c.stride == 0 ? row : std::min(first + c.stride, row);
  if (first >= end) return;
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t at = r * row + first;
    convert(stored + at * c.element.size, reinterpret_cast<float*>(copy) + (c.is_part() ? 0 : at),
            end - first);
  }
}

void run_widened(const void* state, const runtime::KernelBlock& block, int64_t task) {
  const auto& w = *static_cast<const Widened*>(state);
  auto** const operands = reinterpret_cast<std::byte**>(block.workspace + w.pointers);
  std::copy_n(block.operands, w.operands, operands);
  for (const Copy& c : w.copies) {
    std::byte* const copy = block.workspace + c.begin;
    // The kernel adds the offset of the task, which a copy of one part does not have.
    const int64_t offset = c.is_part() ? task * c.stride * 4 : 0;
    at(operands, c.operand) = reinterpret_cast<std::byte*>(reinterpret_cast<uintptr_t>(copy) -
                                                           static_cast<uintptr_t>(offset));
    if (!c.is_input) continue;
    for_each_run(
        c, block.operands[c.operand], copy, task,
        [&](const std::byte* from, float* to, int64_t n) { c.element.widen(from, to, n); });
  }
  const runtime::KernelBlock widened{operands, block.workspace + w.workspace, block.scalars};
  if (w.tasks == w.choice.tasks) {
    w.kernel.run(w.kernel.state.get(), widened, task);
  } else {
    for (int64_t t = 0; t < w.choice.tasks; ++t) w.kernel.run(w.kernel.state.get(), widened, t);
  }
  for (const Copy& c : w.copies) {
    if (c.is_input) continue;
    for_each_run(
        c, block.operands[c.operand], block.workspace + c.begin, task,
        [&](std::byte* to, const float* from, int64_t n) { c.element.narrow(from, to, n); });
  }
}

}  // namespace

const CpuKernel* select_kernel(const OpView& op) {
  const auto kernels = kernel_list();
  const CpuKernel& reference = kernels.back();
  for (const CpuKernel& kernel : kernels.first(kernels.size() - 1)) {
    if (kernel.supports(op)) return &kernel;
  }
  if (reads_or_writes_narrow(op)) {
    const OpRecord record = widened(op);
    for (const CpuKernel& kernel : kernels.first(kernels.size() - 1)) {
      if (kernel.supports(record.view())) return &kernel;
    }
  }
  return reference.supports(op) ? &reference : nullptr;
}

bool can_run(const CpuKernel& kernel, const OpView& op) {
  return kernel.supports(op) || (reads_or_writes_narrow(op) && kernel.supports(widened(op).view()));
}

KernelChoice choose_kernel(const CpuKernel& kernel, const OpView& op) {
  return kernel.supports(op) ? kernel.choose(op) : Widened(kernel, op).narrow_choice();
}

runtime::BoundKernel bind_kernel(const CpuKernel& kernel, std::shared_ptr<const OpRecord> op) {
  if (kernel.supports(op->view())) return kernel.bind(std::move(op));
  auto state = std::make_shared<Widened>(kernel, op->view());
  state->kernel = kernel.bind(std::make_shared<OpRecord>(state->record));
  return {run_widened, state};
}

}  // namespace sluice::cpu
