#include "sluice/cpu/conv/conv.h"

#include <algorithm>

#include "sluice/base/checked.h"
#include "sluice/cpu/conv/depthwise.h"
#include "sluice/cpu/gemm/panels.h"

namespace sluice::cpu {

using internal::kConvColumns;
using internal::kConvDepth;
using internal::kConvRows;
using internal::kConvSlack;

void correlate(const Correlation& c, const CorrelationOperands& operands, const ConvPart& part,
               float* workspace, Isa isa) {
  switch (isa) {
    case Isa::kBase:
      return internal::correlate_on<Isa::kBase>(c, operands, part, workspace);
#if defined(__x86_64__)
    case Isa::kAvx2:
      return internal::correlate_on<Isa::kAvx2>(c, operands, part, workspace);
    case Isa::kAvx512:
      return internal::correlate_on<Isa::kAvx512>(c, operands, part, workspace);
#else
    default:
      break;
#endif
  }
}

void correlate_weights(const WeightCorrelation& c, const WeightCorrelationOperands& operands,
                       const WeightPart& part, float* workspace, Isa isa) {
  switch (isa) {
    case Isa::kBase:
      return internal::correlate_weights_on<Isa::kBase>(c, operands, part, workspace);
#if defined(__x86_64__)
    case Isa::kAvx2:
      return internal::correlate_weights_on<Isa::kAvx2>(c, operands, part, workspace);
    case Isa::kAvx512:
      return internal::correlate_weights_on<Isa::kAvx512>(c, operands, part, workspace);
#else
    default:
      break;
#endif
  }
}

void join_columns(const float* even, const float* odd, int64_t rows, int64_t width, float* to,
                  int64_t to_stride, Isa isa) {
  switch (isa) {
    case Isa::kBase:
      return internal::join_columns_on<Isa::kBase>(even, odd, rows, width, to, to_stride);
#if defined(__x86_64__)
    case Isa::kAvx2:
      return internal::join_columns_on<Isa::kAvx2>(even, odd, rows, width, to, to_stride);
    case Isa::kAvx512:
      return internal::join_columns_on<Isa::kAvx512>(even, odd, rows, width, to, to_stride);
#else
    default:
      break;
#endif
  }
}

int64_t ConvWindows::strips() const { return batch * ceil_div(positions(), kConvStrip); }

internal::CorrelationPlan internal::plan_of(const Correlation& c) {
  CorrelationPlan plan;
  const ConvWindows& w = c.windows;
  const int64_t depth = w.depth(), tap = w.channels * c.weight_channel;
  plan.in_place = depth > 0 && w.strips() <= kFewConvStrips && c.weight_row == 1 &&
                  (w.taps.size() < 2 || w.taps[1].weight - w.taps[0].weight == tap);
  const int64_t most = plan.in_place ? kConvDepthInPlace : kConvDepth;
  plan.depth = depth == 0 ? 0 : ceil_div(depth, ceil_div(depth, most));
  plan.rows = c.rows == 0 ? 0 : ceil_div(c.rows, ceil_div(c.rows, kConvRows));
  // Tiles have at least 6 rows of 8 floats with vectors of 8, 14 rows of 16 floats with 16.
  const int64_t floats = std::max(ceil_div(plan.rows, 6) * 8, ceil_div(plan.rows, 14) * 16);
  plan.weight_floats =
      plan.in_place ? 0 : round_up(plan.depth, kConvSlack) * floats + kConvSlack * kConvSlack;
  plan.source_floats = plan.depth * kConvStrip + kConvSlack;
  return plan;
}

int64_t correlate_workspace_bytes(const Correlation& c) {
  if (internal::is_depthwise(c)) {
    const internal::DepthwisePlan plan = internal::depthwise_plan_of(c);
    return 4 * (plan.source_floats + plan.lanes_floats);
  }
  const internal::CorrelationPlan plan = internal::plan_of(c);
  return 4 * (plan.weight_floats + plan.source_floats);
}

internal::WeightCorrelationPlan internal::plan_of(const WeightCorrelation& c, int64_t steps) {
  WeightCorrelationPlan plan;
  plan.width = Panels::width_for(c.rows);
  plan.columns = round_up(std::min(c.rows, kConvColumns), plan.width);
  // A tile stores rows that are equally far apart, across taps too.
  const std::vector<ConvTap>& taps = c.windows.taps;
  const int64_t tap = c.windows.channels * c.result_channel;
  plan.direct = c.result_row == 1 && (taps.size() == 1 || taps[1].weight == tap);
  plan.y_floats = kConvDepth * plan.columns + kConvSlack * plan.width;
  // One tile has at most 16 rows.
  plan.source_floats = 16 * (kConvDepth + kConvSlack);
  plan.chain_floats = plan.direct ? 0 : steps * plan.columns;
  return plan;
}

int64_t correlate_weights_workspace_bytes(const WeightCorrelation& c, int64_t steps) {
  if (internal::is_depthwise(c)) {
    const internal::DepthwiseWeightsPlan plan = internal::depthwise_plan_of(c);
    return 4 * (plan.source_floats + plan.line_floats + plan.y_floats + plan.chain_floats);
  }
  const internal::WeightCorrelationPlan plan = internal::plan_of(c, steps);
  return 4 * (plan.y_floats + plan.source_floats + plan.chain_floats);
}

}  // namespace sluice::cpu
