#include "sluice/cpu/gemm/gemm.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "sluice/base/checked.h"

namespace sluice::cpu {

using internal::GemmPlan;
using internal::kCopiedDepth;
using internal::kFlippedCols;
using internal::kMaxRows;
using internal::kPanel;
using internal::kRowBlock;
using internal::kRowPanels;
using internal::kTransposedDepth;

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

namespace {

/// Returns the associativity of the L1 data cache; 8 if the system does not report it.
int64_t cache_ways() {
#ifdef _SC_LEVEL1_DCACHE_ASSOC
  static const int64_t ways = sysconf(_SC_LEVEL1_DCACHE_ASSOC);
#else
  constexpr int64_t ways = 0;
#endif
  return ways >= 4 ? ways : 8;
}

}  // namespace

GemmPlan internal::plan_of(const GemmArgs& args) {
  GemmPlan plan;
  const int64_t forward_panel = args.trans_b ? 0 : args.b_panel;
  plan.block_cols = args.c_panel > 0 ? args.c_panel : forward_panel > 0 ? forward_panel : kPanel;
  plan.cache_ways = cache_ways();
  plan.packs_b = args.trans_b || (args.b_panel == 0 && args.k > 32);
  plan.depth_block =
      std::min(args.k, args.trans_b && args.b_panel > 0 ? kTransposedDepth : kCopiedDepth);
  // A row-major B is packed also where its last vector of columns is not whole.
  const bool may_pack = plan.packs_b || args.b_panel == 0;
  const bool many = may_pack && args.k > plan.depth_block;
  plan.chains_aside = args.scratch_c || (args.accumulate && many);
  if (may_pack) plan.packed_floats = round_up(plan.depth_block, kPanel) * kPanel;
  if (plan.chains_aside)
    plan.chain_floats = args.m == 1
                            ? kRowPanels * kPanel
                            : std::min(args.m, args.scratch_c ? kRowBlock : kMaxRows) * kPanel;
  // Transposing a tile costs as much as a few of its steps, so few steps are not worth it. Tiles of
  // the transpose begin at zero.
  plan.flips = !args.continues && args.trans_a && !args.trans_b && args.n <= 12 && args.k >= 24;
  if (plan.flips) plan.flipped_floats = 2 * kFlippedCols * kPanel;
  return plan;
}

int64_t gemm_workspace_bytes(const GemmArgs& args) {
  if (args.m == 0 || args.n == 0) return 0;
  const GemmPlan plan = internal::plan_of(args);
  return 4 * (plan.packed_floats + plan.chain_floats + plan.flipped_floats);
}

namespace {

/// Returns the load imbalance: the share of the busiest worker times the number of workers. 1 is
/// best. Tasks have `per_task` pieces (the last one fewer); each worker gets equally many tasks.
double unevenness(int64_t pieces, int64_t per_task, int64_t workers) {
  const int64_t tasks = ceil_div(pieces, per_task);
  const int64_t max = std::min(pieces, ceil_div(tasks, workers) * per_task);
  return static_cast<double>(max * workers) / static_cast<double>(pieces);
}

}  // namespace

internal::Pieces internal::balance(int64_t pieces, int64_t max) {
  const int64_t min = ceil_div(pieces, max);
  Pieces best{min, INFINITY};
  for (int64_t per_task = min; per_task <= std::min(pieces, 2 * min); ++per_task) {
    double cost = 0;
    for (const int64_t workers : {2, 4, 8}) {
      if (workers <= max) cost += unevenness(pieces, per_task, workers);
    }
    if (cost < best.cost - 1e-9) best = {per_task, cost};
  }
  return best;
}

GemmGrid gemm_grid(const GemmArgs& args, int64_t max) {
  GemmGrid grid{args.m, args.n, args.m > 0, args.n > 0};
  if (grid.tasks() == 0) return grid;
  const double work =
      static_cast<double>(args.m) * static_cast<double>(args.n) * static_cast<double>(args.k);
  const double bytes_of_b = 4 * static_cast<double>(args.n) * static_cast<double>(args.k);
  const int64_t tasks = std::min(tasks_worthwhile(work, bytes_of_b), max);
  const int64_t width = internal::plan_of(args).block_cols;
  const int64_t panels = ceil_div(args.n, width);
  grid.cols = std::min(args.n, internal::balance(panels, tasks).per_task * width);
  grid.col_blocks = ceil_div(args.n, grid.cols);
  const int64_t row_tasks = tasks / grid.col_blocks;
  if (grid.cols > width || row_tasks < 2) return grid;
  // Use a power of two, so that 2, 4 or 8 workers get equal shares.
  constexpr int64_t kMinRows = 8;
  int64_t blocks = 1;
  while (blocks * 2 <= row_tasks && args.m >= blocks * 2 * kMinRows) blocks *= 2;
  grid.rows = ceil_div(args.m, blocks);
  if (grid.rows >= 64) grid.rows = std::min(args.m, round_up(grid.rows, 16));
  grid.row_blocks = ceil_div(args.m, grid.rows);
  return grid;
}

}  // namespace sluice::cpu
