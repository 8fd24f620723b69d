#include <algorithm>

#include "sluice/cpu/kernels/kernel_list.h"
#include "sluice/cpu/kernels/lanes/lane_cut.h"
#include "sluice/cpu/reduce/reduce.h"
#include "sluice/ops/indexing.h"
#include "sluice/ops/reductions.h"

namespace sluice::cpu {
namespace {

constexpr int64_t kLanesSearched = 256;     // Lanes that are searched at once.
constexpr int64_t kElementsSearched = 256;  // Elements that are compared before the search ends.

// The index of the first extreme element of each lane, or of its first NaN.
struct Search : LaneCut {
  explicit Search(const OpView& op) : dtype(op.input(0).dtype) {
    max = &op.def() == &ops::argmax_def();
    const Shape& x = op.input(0).shape;
    const auto o = op.options<ops::ArgOptions>();
    int64_t outer_elements = 1, inner_elements = 1;
    if (o.flatten) {
      extent = x.elements();
    } else {
      const ops::AxisSplit split(x, normalize_axis(o.axis, ops::axes_of(x), op.def().name));
      outer_elements = split.outer;
      inner_elements = split.inner;
      extent = split.extent;
    }
    static_cast<LaneCut&>(*this) = LaneCut(outer_elements, inner_elements, extent);
  }

  DType dtype;
  bool max = true;
  int64_t extent = 1;  // Elements of a lane.
};

// Returns the extreme element of a row, or NaN if it has one.
template <bool kMax, typename E>
E extreme_of(const E* x, int64_t n) {
  E best = x[0];
  if constexpr (std::is_same_v<E, float>) {
    reduce_rows(kMax ? ReduceOp::kMax : ReduceOp::kMin, x, 1, n, n, &best);
  } else {
    for (int64_t i = 1; i < n; ++i) best = kMax ? std::max(best, x[i]) : std::min(best, x[i]);
  }
  return best;
}

template <bool kMax, typename E>
int32_t search_row(const E* x, int64_t n) {
  const E best = extreme_of<kMax>(x, n);
  const bool nan = best != best;
  const auto is_best = [&](E value) { return nan ? value != value : value == best; };
  int64_t i = 0;
  for (; i + kElementsSearched < n; i += kElementsSearched) {
    int found = 0;
    for (int64_t j = 0; j < kElementsSearched; ++j) found |= static_cast<int>(is_best(x[i + j]));
    if (found != 0) break;
  }
  while (i + 1 < n && !is_best(x[i])) ++i;
  return static_cast<int32_t>(i);
}

// Searches `cols` columns whose rows are `inner` elements apart.
template <bool kMax, typename E>
void search_columns(const E* x, int64_t n, int64_t inner, int64_t cols, int32_t* y) {
  E best[kLanesSearched];
  std::copy_n(x, cols, best);
  std::fill_n(y, cols, 0);
  for (int64_t r = 1; r < n; ++r) {
    const E* const row = x + r * inner;
    const auto index = static_cast<int32_t>(r);
    for (int64_t c = 0; c < cols; ++c) {
      const E value = row[c], old = best[c];
      const bool larger = kMax ? value > old : value < old;
      const bool better = (larger | (value != value)) & (old == old);
      best[c] = better ? value : old;
      y[c] = better ? index : y[c];
    }
  }
}

template <bool kMax, typename E>
void search(const Search& s, const runtime::KernelBlock& block, int64_t task) {
  const auto* const x = reinterpret_cast<const E*>(block.operands[0]);
  auto* const y = reinterpret_cast<int32_t*>(block.operands[1]);
  s.for_each_group(task, [&](const LaneGroup& g) {
    const E* const lanes = x + g.outer * s.extent * s.inner;
    if (s.inner == 1) {
      y[g.outer] = search_row<kMax>(lanes, s.extent);
      return;
    }
    for (int64_t c = g.begin; c < g.end; c += kLanesSearched)
      search_columns<kMax>(lanes + c, s.extent, s.inner, std::min(kLanesSearched, g.end - c),
                           y + g.outer * s.inner + c);
  });
}

template <typename E>
void run_search(const void* state, const runtime::KernelBlock& block, int64_t task) {
  const auto& s = *static_cast<const Search*>(state);
  return s.max ? search<true, E>(s, block, task) : search<false, E>(s, block, task);
}

bool supports_argmax(const OpView& op) {
  if (&op.def() != &ops::argmax_def() && &op.def() != &ops::argmin_def()) return false;
  const DType dtype = op.input(0).dtype;
  return op.input(0).elements() > 0 &&
         (dtype == f32 || dtype == i32 || dtype == u32 || dtype == u8);
}

KernelChoice choose_argmax(const OpView& op) {
  const Search s(op);
  KernelChoice choice{.tasks = s.tasks};
  if (s.tasks == 1) return choice;
  s.add_range(s.extent, size_of(s.dtype), choice);
  s.add_range(1, 4, choice);
  return choice;
}

}  // namespace

CpuKernel argmax_kernel() {
  return {"cpu.argmax", supports_argmax, choose_argmax, [](std::shared_ptr<const OpRecord> op) {
            auto state = std::make_shared<Search>(op->view());
            const DType dtype = state->dtype;
            return runtime::BoundKernel{dtype == f32   ? run_search<float>
                                        : dtype == i32 ? run_search<int32_t>
                                        : dtype == u32 ? run_search<uint32_t>
                                                       : run_search<uint8_t>,
                                        std::move(state)};
          }};
}

}  // namespace sluice::cpu
