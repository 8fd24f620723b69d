#include <algorithm>

#include "sluice/base/checked.h"
#include "sluice/cpu/chain.h"
#include "sluice/cpu/gemm_op.h"
#include "sluice/cpu/kernel_list.h"
#include "sluice/cpu/panels.h"

namespace sluice::cpu {
namespace {

constexpr int64_t kMostTasks = 16;
constexpr int64_t kTaskElements = 4096;  // Of an operand: far more work than handing it over costs.

// Stages of which the first may be a matrix product and the others are elementwise, and how they are cut into tasks.
struct Fused {
  explicit Fused(const FusedOp& op)
      : headed(op.stages.front().def == &ops::matmul_def()), chain(op, headed ? 1 : 0) {
    if (headed) {
      describe_product(op);
    } else if (chain.flat()) {
      cols = round_up(std::max(kTaskElements, ceil_div(chain.cols(), kMostTasks)), 16);
      tasks = ceil_div(chain.cols(), cols);
    } else {
      rows =
          std::max<int64_t>({1, kTaskElements / chain.cols(), ceil_div(chain.rows(), kMostTasks)});
      tasks = ceil_div(chain.rows(), rows);
    }
  }

  void describe_product(const FusedOp& op) {
    const FusedOp::Stage& head = op.stages.front();
    const auto& inputs = head.inputs;
    const auto options = from_attrs<ops::MatmulOptions>(head.attrs);
    args = gemm_args(
        ops::matmul_shape(op.spec_of(inputs[0]).shape, op.spec_of(inputs[1]).shape, options));
    a = inputs[0];
    b = inputs[1];
    c = head.output;
    args.b_panel = op.layouts[static_cast<size_t>(b)].panel;
    // Of one column, say, row-major: the transpose of a row or not, as one likes. Not so in panels.
    if (args.b_panel > 0) args.trans_b = options.rhs_transposed;
    for (const FusedOp::Stage& stage : op.stages) {
      if (stage.output >= 0) args.c_panel = op.layouts[static_cast<size_t>(stage.output)].panel;
    }
    args.scratch_c = c < 0;
    grid = one_axis_grid(args);
    tasks = grid.tasks();
    gemm_bytes = round_up(gemm_workspace_bytes(args), 64);
  }

  bool headed;
  Chain chain;
  GemmArgs args;
  GemmGrid grid;
  int32_t a = 0, b = 0, c = -1;  // Operands of the product.
  int64_t gemm_bytes = 0;
  int64_t rows = 0, cols = 0;  // Of a task without a product: the one that is not 0 is cut.
  int64_t tasks = 1;
};

struct Epilogue {
  const Fused* fused;
  const Chain::Parameters* parameters;
  std::byte* const* operands;
  float* scratch;
};

void run_epilogue(const void* state, float* c, int64_t c_stride, int64_t row, int64_t rows,
                  int64_t col, int64_t cols) {
  const auto& e = *static_cast<const Epilogue*>(state);
  e.fused->chain.run({row, rows, col, cols, c, c_stride}, *e.parameters, e.operands, e.scratch);
}

void run(const void* state, const runtime::KernelBlock& block, int64_t task) {
  const Fused& f = *static_cast<const Fused*>(state);
  const Chain::Parameters parameters(f.chain, block.operands);
  if (!f.headed) {
    auto* const scratch = reinterpret_cast<float*>(block.workspace);
    if (f.cols > 0) {
      const int64_t col = task * f.cols;
      f.chain.run({0, 1, col, std::min(f.cols, f.chain.cols() - col)}, parameters, block.operands,
                  scratch);
    } else {
      const int64_t row = task * f.rows;
      f.chain.run({row, std::min(f.rows, f.chain.rows() - row), 0, f.chain.cols()}, parameters,
                  block.operands, scratch);
    }
    return;
  }
  const Epilogue epilogue{&f, &parameters, block.operands,
                          reinterpret_cast<float*>(block.workspace + f.gemm_bytes)};
  GemmArgs args = f.args;
  args.a = reinterpret_cast<const float*>(block.operands[f.a]);
  args.b = reinterpret_cast<const float*>(block.operands[f.b]);
  if (f.c >= 0) args.c = reinterpret_cast<float*>(block.operands[f.c]);
  if (f.chain.has_stages()) args.epilogue = {run_epilogue, &epilogue};
  const int64_t row = task / f.grid.col_blocks * f.grid.rows;
  const int64_t col = task % f.grid.col_blocks * f.grid.cols;
  gemm(args, row, std::min(args.m, row + f.grid.rows), col, std::min(args.n, col + f.grid.cols),
       reinterpret_cast<float*>(block.workspace));
}

bool is_product(const FusedOp& op) {
  const FusedOp::Stage& head = op.stages.front();
  if (head.def != &ops::matmul_def() || head.spec.dtype != f32 || head.spec.shape.rank() != 2 ||
      head.spec.elements() == 0)
    return false;
  for (const int32_t i : head.inputs) {
    const TensorSpec& spec = op.spec_of(i);
    if (spec.dtype != f32 || spec.shape.rank() != 2) return false;
  }
  return op.layouts[static_cast<size_t>(head.inputs[0])] == Layout{};
}

// Whether gemm() has products by and into panels as wide as these.
bool has_panels(const FusedOp& op) {
  const FusedOp::Stage& head = op.stages.front();
  const int64_t of_rhs = op.layouts[static_cast<size_t>(head.inputs[1])].panel;
  int64_t of_result = 0;
  for (const FusedOp::Stage& stage : op.stages) {
    if (stage.output >= 0) of_result = op.layouts[static_cast<size_t>(stage.output)].panel;
  }
  for (const int64_t panel : {of_rhs, of_result}) {
    if (panel != 0 && panel != 16 && panel != 32) return false;
  }
  // Columns of the one are columns of the other.
  return of_rhs == of_result || of_rhs == 0 || of_result == 0 ||
         from_attrs<ops::MatmulOptions>(head.attrs).rhs_transposed;
}

}  // namespace

bool fused_kernel_supports(const FusedOp& op) {
  const bool product = is_product(op);
  if (product && !has_panels(op)) return false;
  for (size_t s = product ? 1 : 0; s < op.stages.size(); ++s) {
    // What the product reads is read whole: a stage may not be the only one to make it, nor read it.
    for (const int32_t i : op.stages[s].inputs) {
      const auto& head = op.stages.front().inputs;
      if (product && std::find(head.begin(), head.end(), i) != head.end()) return false;
    }
  }
  return Chain::exists(op, product ? 1 : 0);
}

Layout preferred_fused_layout(const FusedOp& op, int operand) {
  if (!is_product(op) || operand >= op.inputs) return {};
  const auto& head = op.stages.front().inputs;
  if (head[0] == operand || head[1] != operand) return {};
  return {Panels::width_for(op.operands[static_cast<size_t>(operand)].shape[1])};
}

KernelChoice choose_fused_kernel(const FusedOp& op) {
  const Fused f(op);
  KernelChoice choice;
  choice.key = "cpu.fused";
  choice.tasks = f.tasks;
  choice.workspace_bytes = f.gemm_bytes + f.chain.scratch_bytes();
  choice.may_coincide = f.chain.may_coincide();
  for (size_t i = 0; i < op.operands.size(); ++i) {
    Chain::Cut cut;
    const bool of_product =
        f.headed && (static_cast<int32_t>(i) == f.a || static_cast<int32_t>(i) == f.b);
    if (f.tasks == 1) {
      // Nothing is cut.
    } else if (!of_product && f.headed) {
      cut = f.grid.col_blocks > 1 ? f.chain.cut_columns(i, f.grid.cols)
                                  : f.chain.cut_rows(i, f.grid.rows);
    } else if (!of_product) {
      cut = f.cols > 0 ? f.chain.cut_columns(i, f.cols) : f.chain.cut_rows(i, f.rows);
    }
    choice.task_stride.push_back(cut.stride);
    choice.task_pitch.push_back(cut.pitch);
  }
  return choice;
}

runtime::BoundKernel bind_fused_kernel(const FusedOp& op) {
  double flops = 0;
  for (const FusedOp::Stage& stage : op.stages)
    flops += flops_of(OpView(*stage.def, stage.attrs, op.input_specs(stage), {&stage.spec, 1}));
  return {run, std::make_shared<Fused>(op), flops};
}

}  // namespace sluice::cpu
