#include "sluice/cpu/gemm/gemm_op.h"
#include "sluice/cpu/kernels/kernel_list.h"
#include "sluice/ops/op.h"

namespace sluice::cpu {
namespace {

struct Gemm {
  GemmArgs args;
  GemmGrid grid;
  int64_t batches = 1;
  // Offsets of A and B in elements, for each output matrix.
  std::vector<int64_t> a_offset;
  std::vector<int64_t> b_offset;
};

ops::MatmulShape shape_of(const OpView& op) {
  return ops::fold_batch(
      ops::matmul_shape(op.input(0).shape, op.input(1).shape, op.options<ops::MatmulOptions>()));
}

// Returns how one output matrix is cut. With several matrices, each is a single task.
GemmGrid grid_of(const GemmArgs& args, int64_t batches) {
  if (batches == 1) return one_axis_grid(args);
  return {args.m, args.n, 1, 1};
}

std::vector<int64_t> batch_offsets(const ops::MatrixView& view, const Shape& batch) {
  const ops::BroadcastIndex index(view.batch, batch);
  std::vector<int64_t> offsets;
  for (int64_t b = 0; b < batch.elements(); ++b)
    offsets.push_back(index(b) * view.rows * view.cols);
  return offsets;
}

void run_gemm(const void* state, const runtime::KernelBlock& block, int64_t task) {
  const auto& gemm_state = *static_cast<const Gemm*>(state);
  const GemmGrid& grid = gemm_state.grid;
  const int64_t per_matrix = grid.tasks();
  const int64_t batch = task / per_matrix;
  const int64_t tile = task % per_matrix;
  GemmArgs args = gemm_state.args;
  args.a = reinterpret_cast<const float*>(block.operands[0]) + gemm_state.a_offset.data()[batch];
  args.b = reinterpret_cast<const float*>(block.operands[1]) + gemm_state.b_offset.data()[batch];
  args.c = reinterpret_cast<float*>(block.operands[2]) + batch * args.m * args.n;
  const int64_t row = tile / grid.col_blocks * grid.rows;
  const int64_t col = tile % grid.col_blocks * grid.cols;
  gemm(args, row, std::min(args.m, row + grid.rows), col, std::min(args.n, col + grid.cols),
       reinterpret_cast<float*>(block.workspace));
}

bool supports_gemm(const OpView& op) {
  return &op.def() == &ops::matmul_def() && op.input(0).dtype == f32 && op.input(1).dtype == f32 &&
         op.output(0).dtype == f32 && op.output(0).elements() > 0;
}

KernelChoice choose_gemm(const OpView& op) {
  const ops::MatmulShape s = shape_of(op);
  const GemmArgs args = gemm_args(s);
  const int64_t batches = s.batch.elements();
  const GemmGrid grid = grid_of(args, batches);
  KernelChoice choice;
  choice.tasks = batches * grid.tasks();
  choice.workspace_bytes = gemm_workspace_bytes(args);
  choice.task_stride = {0, 0, grid.col_blocks > 1 ? grid.cols * 4 : grid.rows * args.n * 4};
  choice.task_pitch = {0, 0, grid.col_blocks > 1 ? args.n * 4 : 0};
  return choice;
}

runtime::BoundKernel bind_gemm(std::shared_ptr<const OpRecord> op) {
  const OpView view = op->view();
  const ops::MatmulShape s = shape_of(view);
  auto state = std::make_shared<Gemm>();
  state->args = gemm_args(s);
  state->batches = s.batch.elements();
  state->grid = grid_of(state->args, state->batches);
  state->a_offset = batch_offsets(s.lhs, s.batch);
  state->b_offset = batch_offsets(s.rhs, s.batch);
  return {run_gemm, state};
}

}  // namespace

CpuKernel gemm_kernel() { return {"cpu.gemm", supports_gemm, choose_gemm, bind_gemm}; }

}  // namespace sluice::cpu
