#include "sluice/cpu/gemm.h"

#include <algorithm>

#include "sluice/base/checked.h"

namespace sluice::cpu {

using internal::kDepthBlock;
using internal::kPanel;
using internal::kRowBlock;
using internal::kSlack;

void gemm(const GemmArgs& args, int64_t row_begin, int64_t row_end, int64_t col_begin,
          int64_t col_end, float* workspace, Isa isa) {
  switch (isa) {
    case Isa::kBase:
      return internal::gemm_on<Isa::kBase>(args, row_begin, row_end, col_begin, col_end, workspace);
#if defined(__x86_64__)
    case Isa::kAvx2:
      return internal::gemm_on<Isa::kAvx2>(args, row_begin, row_end, col_begin, col_end, workspace);
    case Isa::kAvx512:
      return internal::gemm_on<Isa::kAvx512>(args, row_begin, row_end, col_begin, col_end,
                                             workspace);
#else
    default:
      break;
#endif
  }
}

int64_t gemm_workspace_bytes(const GemmArgs& args) {
  if (args.m == 0 || args.n == 0) return 0;
  const int64_t rows = std::min(args.m, kRowBlock);
  const int64_t depth = std::min(args.k, kDepthBlock);
  const int64_t block_a = round_up(rows * depth + kSlack, 16);
  const int64_t panel_b = depth * kPanel;
  const int64_t chains = args.accumulate && args.k > kDepthBlock ? checked_mul(rows, args.n) : 0;
  return round_up(4 * checked_add(block_a + panel_b, chains), 64);
}

GemmGrid gemm_grid(const GemmArgs& args, int64_t most) {
  constexpr double kWorthwhile = 1 << 16;  // multiply-adds: a few microseconds
  GemmGrid grid{args.m, args.n, args.m > 0, args.n > 0};
  if (grid.tasks() == 0) return grid;
  const double work =
      static_cast<double>(args.m) * static_cast<double>(args.n) * static_cast<double>(args.k);
  const int64_t tasks =
      std::clamp<int64_t>(static_cast<int64_t>(std::min(work / kWorthwhile, 1e9)), 1, most);
  // Columns first, in whole panels: a block of columns packs its own B and repeats only the packing
  // of A.
  const int64_t panels = ceil_div(args.n, kPanel);
  grid.cols = std::min(args.n, ceil_div(panels, std::min(tasks, panels)) * kPanel);
  grid.col_blocks = ceil_div(args.n, grid.cols);
  constexpr int64_t kRows = 14;
  const int64_t strips = ceil_div(args.m, kRows);
  const int64_t row_tasks = std::clamp<int64_t>(tasks / grid.col_blocks, 1, strips);
  grid.rows = std::min(args.m, ceil_div(strips, row_tasks) * kRows);
  grid.row_blocks = ceil_div(args.m, grid.rows);
  return grid;
}

}  // namespace sluice::cpu
