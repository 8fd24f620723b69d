#include "sluice/base/checked.h"
#include "sluice/cpu/kernels/kernel_list.h"
#include "sluice/cpu/simd/conversions.h"

namespace sluice::cpu {
namespace {

struct Reference {
  std::shared_ptr<const OpRecord> op;
  int operands = 0;
  int64_t pointers = 0;  // Offset in the workspace of the operands' addresses.
  // Offset in the workspace of the f32 copy of an f16 or bf16 operand; -1 for other dtypes.
  std::vector<int64_t> scratch;
};

bool is_narrow(const TensorSpec& spec) { return spec.dtype == f16 || spec.dtype == bf16; }

const TensorSpec& operand_spec(const OpView& op, int i) {
  return i < op.inputs() ? op.input(i) : op.output(i - op.inputs());
}

std::vector<int64_t> scratch_offsets(const OpView& op, int64_t& total) {
  std::vector<int64_t> offsets;
  total = 0;
  for (int i = 0; i < op.inputs() + op.outputs(); ++i) {
    const TensorSpec& spec = operand_spec(op, i);
    offsets.push_back(is_narrow(spec) ? total : -1);
    if (is_narrow(spec)) total += round_up(spec.elements() * 4, 64);
  }
  return offsets;
}

void run_reference(const void* state, const runtime::KernelBlock& block, int64_t) {
  const auto& r = *static_cast<const Reference*>(state);
  const OpView view = r.op->view();
  // The workspace also holds the pointers, because a step must not allocate memory.
  void** const operands = reinterpret_cast<void**>(block.workspace + r.pointers);
  for (int i = 0; i < r.operands; ++i) {
    const int64_t offset = at(r.scratch, i);
    operands[i] = offset < 0 ? block.operands[i] : block.workspace + offset;
    if (offset >= 0 && i < view.inputs()) {
      const TensorSpec& spec = operand_spec(view, i);
      widen_kernel(spec.dtype)(block.operands[i],
                               reinterpret_cast<float*>(block.workspace + offset), spec.elements());
    }
  }
  view.def().reference_float(KernelArgs(view, {operands, operands + r.operands}));
  for (int i = view.inputs(); i < r.operands; ++i) {
    const int64_t offset = at(r.scratch, i);
    if (offset >= 0) {
      const TensorSpec& spec = operand_spec(view, i);
      narrow_kernel(spec.dtype)(reinterpret_cast<const float*>(block.workspace + offset),
                                block.operands[i], spec.elements());
    }
  }
}

}  // namespace

CpuKernel reference_kernel() {
  return {"cpu.reference", [](const OpView& op) { return op.def().reference_float != nullptr; },
          [](const OpView& op) {
            KernelChoice choice;
            scratch_offsets(op, choice.workspace_bytes);
            choice.workspace_bytes +=
                static_cast<int64_t>(sizeof(void*)) * (op.inputs() + op.outputs());
            return choice;
          },
          [](std::shared_ptr<const OpRecord> op) {
            auto state = std::make_shared<Reference>();
            state->scratch = scratch_offsets(op->view(), state->pointers);
            state->operands = static_cast<int>(state->scratch.size());
            state->op = op;
            return runtime::BoundKernel{run_reference, state};
          }};
}

}  // namespace sluice::cpu
