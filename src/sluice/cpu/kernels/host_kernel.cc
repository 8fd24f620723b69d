#include <algorithm>
#include <utility>

#include "sluice/base/checked.h"
#include "sluice/cpu/kernels/kernel_list.h"

namespace sluice::cpu {
namespace {

// A registered operator that defines a host kernel (OpDef::host_kernel).
struct Host {
  std::shared_ptr<const OpRecord> op;
  int64_t rows = 1;      // Rows of the results.
  int64_t per_task = 1;  // Rows of a task.
};

int64_t rows_of_result(const TensorSpec& spec) {
  return spec.shape.rank() == 0 ? 1 : spec.shape[0];
}

void run_host(const void* state, const runtime::KernelBlock& block, int64_t task) {
  const auto& host = *static_cast<const Host*>(state);
  const OpView view = host.op->view();
  // The workspace stores the pointers, because a step must not allocate memory.
  void** const operands = reinterpret_cast<void**>(block.workspace);
  const int count = view.inputs() + view.outputs();
  std::copy(block.operands, block.operands + count, operands);
  view.def().host_kernel.run(KernelArgs(view, {operands, operands + count}), task * host.per_task,
                             std::min(host.rows, (task + 1) * host.per_task));
}

bool is_read_by_host_kernels(const TensorSpec& spec) {
  return !is_float(spec.dtype) || spec.dtype == f32;
}

bool supports_host(const OpView& op) {
  if (op.def().host_kernel.run == nullptr) return false;
  for (int i = 0; i < op.inputs(); ++i)
    if (!is_read_by_host_kernels(op.input(i))) return false;
  for (int i = 0; i < op.outputs(); ++i)
    if (!is_read_by_host_kernels(op.output(i))) return false;
  return true;
}

Host host_of(const OpView& op) {
  Host host;
  host.rows = rows_of_result(op.output(0));
  host.per_task = op.def().host_kernel.rows(op);
  require(host.per_task >= 1, "{}: a part of host_kernel must have at least 1 row, got {}",
          op.def().name, host.per_task);
  for (int i = 1; i < op.outputs(); ++i)
    require(rows_of_result(op.output(i)) == host.rows,
            "{}: results of host_kernel must have {} rows, got {}", op.def().name, host.rows,
            to_string(op.output(i)));
  return host;
}

KernelChoice choose_host(const OpView& op) {
  const Host host = host_of(op);
  KernelChoice choice;
  choice.tasks = std::max<int64_t>(1, ceil_div(host.rows, host.per_task));
  choice.task_stride.assign(static_cast<size_t>(op.inputs()), 0);
  for (int i = 0; i < op.outputs(); ++i) {
    const int64_t row = op.output(i).bytes() / std::max<int64_t>(1, host.rows);
    choice.task_stride.push_back(choice.tasks == 1 ? 0 : row * host.per_task);
  }
  choice.workspace_bytes = static_cast<int64_t>(sizeof(void*)) * (op.inputs() + op.outputs());
  return choice;
}

}  // namespace

CpuKernel host_kernel() {
  return {"cpu.host", supports_host, choose_host, [](std::shared_ptr<const OpRecord> op) {
            auto host = std::make_shared<Host>(host_of(op->view()));
            host->op = std::move(op);
            return runtime::BoundKernel{run_host, host};
          }};
}

}  // namespace sluice::cpu
