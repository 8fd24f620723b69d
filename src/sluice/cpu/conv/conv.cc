#include "sluice/cpu/conv/conv.h"

#include <algorithm>

#include "sluice/base/checked.h"
#include "sluice/cpu/conv/depthwise.h"
#include "sluice/cpu/gemm/panels.h"

namespace sluice::cpu {

using internal::kConvColumns;
using internal::kConvDepth;
using internal::kConvGathered;
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
  const int64_t max = plan.in_place ? kConvDepthInPlace : kConvDepth;
  plan.depth = depth == 0 ? 0 : ceil_div(depth, ceil_div(depth, max));
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

namespace {

/// Returns how many positions correlate_weights() packs at a time if taps that differ by rows of
/// the grid share packed sources, and 0 if they cannot share them.
int64_t shared_depth(const ConvWindows& w) {
  constexpr int64_t kMinPlane = 16;  // Tiles have a run of steps for each plane.
  const int64_t plane = w.positions();
  if (w.grid[0] > 1 || plane < kMinPlane) return 0;
  const auto [low, high] = std::minmax_element(
      w.taps.begin(), w.taps.end(),
      [](const ConvTap& a, const ConvTap& b) { return a.offset[1] < b.offset[1]; });
  // The sources of the rows below those of a run are packed, too.
  const int64_t below = (high->offset[1] - low->offset[1]) / w.step[1] * w.grid[2];
  const int64_t runs = std::max<int64_t>(1, kConvDepth / plane);
  const int64_t run = ceil_div(plane, ceil_div(plane, kConvDepth));
  return below > 0 && runs * (run + below) <= kConvGathered ? runs * run : 0;
}

}  // namespace

internal::WeightCorrelationPlan internal::plan_of(const WeightCorrelation& c, int64_t steps) {
  WeightCorrelationPlan plan;
  plan.by_channels = c.windows.channels >= kConvManyChannels;
  plan.depth = plan.by_channels ? shared_depth(c.windows) : 0;
  plan.shares = plan.depth > 0;
  if (!plan.shares) plan.depth = kConvDepth;
  plan.width = Panels::width_for(c.rows);
  plan.columns = round_up(std::min(c.rows, kConvColumns), plan.width);
  // A tile stores rows that are equally far apart, across taps too.
  const std::vector<ConvTap>& taps = c.windows.taps;
  const int64_t tap = c.windows.channels * c.result_channel;
  plan.direct = c.result_row == 1 && (taps.size() == 1 || taps[1].weight == tap);
  plan.y_floats = kConvDepth * plan.columns + kConvSlack * plan.width;
  // One tile has at most 16 rows.
  plan.source_floats = 16 * (kConvGathered + kConvSlack);
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
