#include "sluice/cpu/conv/depthwise.h"

#include <algorithm>

#include "sluice/base/checked.h"
#include "sluice/base/ids/ids.h"

namespace sluice::cpu::internal {
namespace {

// Larger groups are products of matrices, which are worth their packing.
constexpr int64_t kFewRows = 4, kFewChannels = 4;
// Lanes without a group are lost.
constexpr int64_t kMinGroups = 4;
// Packed floats that stay in the L1 cache.
constexpr int64_t kBandFloats = 1 << 13;
// Packed groups are read in ascending order, which is fast from the L2 cache too.
constexpr int64_t kGroupBandFloats = 1 << 15;
// A longer row would leave the L2 cache.
constexpr int64_t kMaxFloats = 1 << 17;
// Positions that are transposed before they are copied to their rows.
constexpr int64_t kLinePositions = 128;

bool is_small(const ConvWindows& w, int64_t rows) {
  return rows > 0 && rows <= kFewRows && w.channels > 0 && w.channels <= kFewChannels &&
         w.positions() > 0 && w.plane() > 0 && w.taps.size() <= PackedSource::kMax;
}

int64_t floor_div(int64_t a, int64_t b) { return a >= 0 ? a / b : -((b - 1 - a) / b); }

/// Returns the packed form of a source whose elements are separated modulo `step`. The positions of
/// a row of the grid read `span` of them under a tap, from the first to the last.
PackedSource pack(const ConvWindows& w, const Extent& step, int64_t span) {
  PackedSource p;
  p.step = step;
  Extent low{}, high{};
  for (size_t t = 0; t < w.taps.size(); ++t) {
    for (size_t a = 1; a < 3; ++a) {
      const int64_t at = floor_div(w.taps[t].offset[a], step[a]);
      low[a] = t == 0 ? at : std::min(low[a], at);
      high[a] = t == 0 ? at : std::max(high[a], at);
    }
  }
  p.low = low[2];
  p.length = span + high[2] - low[2];
  p.above = low[1];
  p.more = high[1] - low[1];
  const int64_t left = std::clamp<int64_t>(-p.low, 0, p.length);
  const int64_t right =
      std::clamp<int64_t>(p.low + p.length - ceil_div(w.source[2], step[2]), 0, p.length);
  p.pitch = std::max(span, p.length - std::min(left, right));
  for (size_t t = 0; t < w.taps.size(); ++t) {
    const Extent& at = w.taps[t].offset;
    const int64_t row = floor_div(at[1], step[1]), column = floor_div(at[2], step[2]);
    const Extent rest{at[0], at[1] - row * step[1], at[2] - column * step[2]};
    const auto end = p.region.begin() + p.regions;
    const auto found = std::find(p.region.begin(), end, rest);
    if (found == end) sluice::at(p.region, p.regions++) = rest;
    p.tap[t] = {found - p.region.begin(), (row - p.above) * p.pitch + column - p.low};
  }
  return p;
}

}  // namespace

DepthwisePlan depthwise_plan_of(const Correlation& c) {
  const ConvWindows& w = c.windows;
  DepthwisePlan plan;
  plan.packed = pack(w, w.step, w.grid[2]);
  const int64_t regions = plan.packed.regions * w.channels;
  const int64_t max = kBandFloats / std::max<int64_t>(regions, 1) - plan.packed.elements(0);
  plan.rows = std::clamp<int64_t>(max / plan.packed.pitch, 1, w.grid[1]);
  plan.region_floats = plan.packed.elements(plan.rows);
  plan.source_floats = regions * plan.region_floats + kConvSlack;
  plan.lanes_floats = plan.rows * plan.packed.pitch;
  return plan;
}

bool is_depthwise(const Correlation& c) {
  if (!is_small(c.windows, c.rows)) return false;
  return depthwise_plan_of(c).source_floats <= kMaxFloats;
}

DepthwiseWeightsPlan depthwise_plan_of(const WeightCorrelation& c) {
  const ConvWindows& w = c.windows;
  DepthwiseWeightsPlan plan;
  plan.packed = pack(w, {1, 1, 1}, (w.grid[2] - 1) * w.step[2] + 1);
  const int64_t regions = std::max<int64_t>(plan.packed.regions, 1);
  const int64_t max = kGroupBandFloats / (regions * kGroupLanes) - plan.packed.elements(0);
  plan.rows = std::clamp<int64_t>(max / (plan.packed.pitch * w.step[1]), 1, w.grid[1]);
  plan.region_elements = plan.packed.elements((plan.rows - 1) * w.step[1] + 1);
  plan.source_floats = regions * plan.region_elements * kGroupLanes;
  plan.line_rows = std::clamp<int64_t>(kLinePositions / w.source[2], 1, w.source[1]);
  plan.line_floats = round_up(plan.line_rows * w.source[2], kGroupLanes) * kGroupLanes;
  plan.y_floats = round_up(plan.rows * w.grid[2], kGroupLanes) * kGroupLanes;
  plan.chain_floats = c.rows * static_cast<int64_t>(w.taps.size()) * kGroupLanes;
  return plan;
}

bool is_depthwise(const WeightCorrelation& c) {
  if (!is_small(c.windows, c.rows) || c.windows.groups < kMinGroups) return false;
  const DepthwiseWeightsPlan plan = depthwise_plan_of(c);
  return plan.source_floats + plan.line_floats + plan.y_floats <= 4 * kMaxFloats;
}

}  // namespace sluice::cpu::internal
