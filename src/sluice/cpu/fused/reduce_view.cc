#include "sluice/cpu/fused/reduce_view.h"

#include <set>

#include "sluice/ops/indexing.h"
#include "sluice/ops/reductions.h"

namespace sluice::cpu {
namespace {

std::optional<ReduceOp> reduce_op(const OpDef& def) {
  const std::pair<const OpDef*, ReduceOp> table[] = {
      {&ops::reduce_sum_def(), ReduceOp::kSum},
      {&ops::reduce_mean_def(), ReduceOp::kMean},
      {&ops::reduce_max_def(), ReduceOp::kMax},
      {&ops::reduce_min_def(), ReduceOp::kMin},
      {&ops::reduce_prod_def(), ReduceOp::kProd},
      {&ops::reduce_l1_def(), ReduceOp::kL1},
      {&ops::reduce_l2_def(), ReduceOp::kL2},
      {&ops::reduce_sum_square_def(), ReduceOp::kSumSquare},
      {&ops::reduce_sum_square_extended_def(), ReduceOp::kSumSquareExtended}};
  for (const auto& [d, op] : table) {
    if (d == &def) return op;
  }
  return std::nullopt;
}

}  // namespace

std::optional<ReduceView> reduce_view(const OpView& view) {
  const auto op = reduce_op(view.def());
  if (!op) return std::nullopt;
  ReduceView r;
  r.op = *op;
  const Shape& in = view.input(0).shape;
  const auto options = view.options<ops::ReduceOptions>();
  std::set<int> axes;
  for (const int64_t axis : options.axes)
    axes.insert(normalize_axis(axis, ops::axes_of(in), "reduce"));
  // An axis of size 1 counts as reduced or as kept, whichever fits.
  int changes = 0;
  std::optional<bool> previous;
  bool first = false;
  int64_t leading = 1;  // Elements of the axes before the first change.
  for (int i = 0; i < in.rank(); ++i) {
    const bool reduced = axes.empty() || axes.contains(i);
    (reduced ? r.extent : r.results) *= in[i];
    if (in[i] == 1) continue;
    if (!previous) first = reduced;
    if (previous && *previous != reduced) ++changes;
    if (changes == 0) leading *= in[i];
    previous = reduced;
  }
  r.columns = changes == (first ? 1 : 2);
  if (changes == 2) (first ? r.runs : r.matrices) = leading;
  if (changes > 2 || r.results == 0) return std::nullopt;
  return r;
}

}  // namespace sluice::cpu
