#include "sluice/cpu/conv/conv_op.h"

#include <algorithm>

#include "sluice/base/checked.h"
#include "sluice/cpu/conv/depthwise.h"
#include "sluice/cpu/layout/layouts.h"

namespace sluice::cpu {
namespace {

// Multiply-adds of a task: about a microsecond.
constexpr double kWorthwhile = 1 << 16;
// A task packs its operands for itself, so it should not be a small part of the steps.
constexpr int64_t kMinSteps = 288;
// Tiles have channels as rows.
constexpr int64_t kMinChannels = 4;
constexpr int64_t kMaxConvTasks = 8;
constexpr int64_t kLargeWeight = 1 << 18;
// Each task packs all sources, which costs little compared with so many rows.
constexpr int64_t kRowsOfLargeWeight = 64;
// With few strips, a task reads its rows of the weight from memory: ranges of so many rows.
constexpr int64_t kRowsInPlace = 128;

/// Calls f(tap, {depth, height, width of the tap}) in ascending order.
template <typename F>
void for_taps(const ops::ConvSizes& s, F&& f) {
  int64_t tap = 0;
  for (int64_t d = 0; d < s.taps[0]; ++d)
    for (int64_t h = 0; h < s.taps[1]; ++h)
      for (int64_t w = 0; w < s.taps[2]; ++w) f(tap++, Extent{d, h, w});
}

/// Returns the windows that move over x, as conv() and conv_weight_grad() read it.
ConvWindows windows_over_x(const ops::ConvSizes& s, int64_t tap_step) {
  ConvWindows w{.batch = s.batch,
                .groups = s.groups,
                .channels = s.x_channels,
                .source = s.x_size,
                .grid = s.y_size,
                .step = s.stride};
  for_taps(s, [&](int64_t tap, const Extent& at) {
    ConvTap t{.weight = tap * tap_step};
    for (size_t a = 0; a < 3; ++a) t.offset[a] = at[a] * s.dilation[a] - s.padding[a];
    w.taps.push_back(t);
  });
  return w;
}

/// Returns the correlation for the positions of x that are `rest` modulo the stride.
Correlation transposed_part(const ops::ConvSizes& s, const ConvWeightSteps& steps,
                            const Extent& rest) {
  Correlation c;
  c.windows = {.batch = s.batch, .groups = s.groups, .channels = s.y_channels, .source = s.y_size};
  for (size_t a = 0; a < 3; ++a)
    c.windows.grid[a] = ceil_div(std::max<int64_t>(0, s.x_size[a] - rest[a]), s.stride[a]);
  for_taps(s, [&](int64_t tap, const Extent& at) {
    ConvTap t{.weight = tap * steps.tap};
    for (size_t a = 0; a < 3; ++a) {
      const int64_t ahead = rest[a] + s.padding[a] - at[a] * s.dilation[a];
      if (ahead % s.stride[a] != 0) return;
      t.offset[a] = ahead / s.stride[a];
    }
    c.windows.taps.push_back(t);
  });
  c.rows = s.x_channels;
  c.weight_group = s.y_channels * steps.out;
  c.weight_row = steps.in;
  c.weight_channel = steps.out;
  c.result_plane = s.x_positions();
  return c;
}

/// Calls f(rest) for all positions modulo the stride, in the order of ConvPlan::correlations.
template <typename F>
void for_rests(const ops::ConvSizes& s, F&& f) {
  for (int64_t d = 0; d < std::min(s.stride[0], s.x_size[0]); ++d)
    for (int64_t h = 0; h < std::min(s.stride[1], s.x_size[1]); ++h)
      for (int64_t w = 0; w < std::min(s.stride[2], s.x_size[2]); ++w) f(Extent{d, h, w});
}

double work_of(const ConvPlan& plan) {
  double work = 0;
  for (const Correlation& c : plan.correlations) {
    work += static_cast<double>(c.windows.batch * c.windows.groups * c.rows) *
            static_cast<double>(c.windows.positions()) * static_cast<double>(c.windows.depth());
  }
  return work;
}

}  // namespace

ConvWeightSteps weight_steps(const ops::ConvSizes& s, const Layout& layout) {
  if (layout == in_taps()) {
    const int64_t out = s.groups * s.y_channels;
    return {.out = 1, .in = out, .tap = s.x_channels * out};
  }
  return {.out = s.x_channels * s.tap_count(), .in = s.tap_count(), .tap = 1};
}

ConvPlan plan_conv(const ops::ConvSizes& s, const ConvWeightSteps& steps) {
  Correlation c;
  c.windows = windows_over_x(s, steps.tap);
  c.rows = s.y_channels;
  c.weight_group = s.y_channels * steps.out;
  c.weight_row = steps.out;
  c.weight_channel = steps.in;
  c.result_plane = s.y_positions();
  return {{c}, s};
}

ConvPlan plan_conv_transpose(const ops::ConvSizes& s, const ConvWeightSteps& steps) {
  ConvPlan plan{{}, s};
  for_rests(
      s, [&](const Extent& rest) { plan.correlations.push_back(transposed_part(s, steps, rest)); });
  return plan;
}

WeightCorrelation plan_conv_weight_grad(const ops::ConvSizes& s, const ConvWeightSteps& steps) {
  WeightCorrelation c;
  c.windows = windows_over_x(s, steps.tap);
  c.rows = s.y_channels;
  c.result_group = s.y_channels * steps.out;
  c.result_row = steps.out;
  c.result_channel = steps.in;
  return c;
}

ConvCut cut_conv(const ConvPlan& plan) {
  const Correlation& c = plan.correlations.front();
  const ConvWindows& w = c.windows;
  const int64_t rows = w.groups * c.rows, positions = w.positions();
  ConvCut cut{w.batch, rows, positions, 1};
  const auto worth = static_cast<int64_t>(std::min(work_of(plan) / kWorthwhile, 1e9));
  const int64_t max = std::clamp<int64_t>(worth, 1, kMaxConvTasks);
  constexpr int64_t kManyPositions = 16 * kConvStrip;
  if (max == 1 || cut.samples == 0) return cut;
  const auto cut_rows = [&](int64_t of_task) {
    cut.rows = std::min(rows, of_task);
    cut.tasks = ceil_div(rows, cut.rows);
    if (cut.tasks == 1) return;
    cut.stride = cut.rows * c.result_plane * 4;
    cut.pitch = c.windows.batch > 1 ? rows * c.result_plane * 4 : 0;
  };
  const bool small_groups = internal::is_depthwise(c);
  // A weight that exceeds the L2 cache is read once, by tasks that each have some of its rows.
  const int64_t weight = rows * c.windows.depth();
  const int64_t min = w.strips() <= kFewConvStrips ? kRowsInPlace : kRowsOfLargeWeight;
  if (weight >= kLargeWeight && rows >= 2 * kRowsOfLargeWeight) {
    cut_rows(std::max(min, ceil_div(rows, max)));
  } else if (cut.samples >= 4) {
    cut.samples = ceil_div(cut.samples, std::min(max, cut.samples));
    cut.tasks = ceil_div(c.windows.batch, cut.samples);
    if (cut.tasks == 1) return cut;
    cut.source_stride = cut.samples * c.windows.groups * c.windows.channels * c.windows.plane() * 4;
    cut.stride = cut.samples * rows * c.result_plane * 4;
  } else if (!plan.interleaves() && positions >= kManyPositions &&
             !(small_groups && w.groups >= max)) {
    cut.positions = ceil_div(ceil_div(positions, kConvStrip), max) * kConvStrip;
    cut.tasks = ceil_div(positions, cut.positions);
    cut.stride = cut.positions * 4;
    cut.pitch = c.result_plane * 4;
  } else {
    // Rows of a small group share their packed sources.
    constexpr int64_t kMinRows = 32;
    const int64_t share = ceil_div(rows, max);
    cut_rows(small_groups ? round_up(share, c.rows) : std::max(kMinRows, share));
  }
  return cut;
}

ConvPart part_of(const ConvCut& cut, const Correlation& c, int64_t task) {
  ConvPart part{0, c.windows.batch, 0, c.windows.groups * c.rows, 0, c.windows.positions()};
  if (cut.samples < part.end_sample) {
    part.first_sample = task * cut.samples;
    part.end_sample = std::min(part.end_sample, part.first_sample + cut.samples);
  } else if (cut.rows < part.end_row) {
    part.first_row = task * cut.rows;
    part.end_row = std::min(part.end_row, part.first_row + cut.rows);
  } else if (cut.tasks > 1) {
    part.first_position = task * cut.positions;
    part.end_position = std::min(part.end_position, part.first_position + cut.positions);
  }
  return part;
}

namespace {

int64_t correlations_bytes(const ConvPlan& plan) {
  int64_t bytes = 0;
  for (const Correlation& c : plan.correlations)
    bytes = std::max(bytes, round_up(correlate_workspace_bytes(c), 64));
  return bytes;
}

/// Restores the order of a plane of a transposed convolution's result. `scratch` has its floats.
void interleave(const ConvPlan& plan, float* values, float* scratch, Isa isa) {
  const ops::ConvSizes& s = plan.sizes;
  const int64_t height = s.x_size[1], width = s.x_size[2], stride = s.stride[2];
  const float* from = values;
  for_rests(s, [&](const Extent& rest) {
    const int64_t depths = ceil_div(s.x_size[0] - rest[0], s.stride[0]);
    const int64_t rows = ceil_div(height - rest[1], s.stride[1]);
    const int64_t columns = ceil_div(width - rest[2], stride);
    const bool pairs = stride == 2 && width > 1;
    // Odd columns were written together with the even ones before them.
    for (int64_t d = 0; d < depths && !(pairs && rest[2] == 1); ++d) {
      float* const to =
          scratch + ((rest[0] + d * s.stride[0]) * height + rest[1]) * width + rest[2];
      const int64_t to_stride = s.stride[1] * width;
      if (pairs) {
        const float* const even = from + d * rows * columns;
        const float* const odd = from + depths * rows * columns + d * rows * (width / 2);
        join_columns(even, odd, rows, width, to, to_stride, isa);
        continue;
      }
      for (int64_t h = 0; h < rows; ++h) {
        const float* const row = from + (d * rows + h) * columns;
        for (int64_t i = 0; i < columns; ++i) to[h * to_stride + i * stride] = row[i];
      }
    }
    from += depths * rows * columns;
  });
  std::copy_n(scratch, s.x_positions(), values);
}

}  // namespace

int64_t conv_workspace_bytes(const ConvPlan& plan) {
  return correlations_bytes(plan) +
         (plan.interleaves() ? plan.correlations.front().result_plane * 4 : 0);
}

void run_conv_task(const ConvPlan& plan, const ConvCut& cut, CorrelationOperands operands,
                   int64_t task, float* workspace, Isa isa) {
  float* const result = operands.result;
  for (const Correlation& c : plan.correlations) {
    correlate(c, operands, part_of(cut, c, task), workspace, isa);
    operands.result += c.windows.positions();
  }
  if (!plan.interleaves()) return;
  const Correlation& c = plan.correlations.front();
  const ConvPart part = part_of(cut, c, task);
  const int64_t rows = c.windows.groups * c.rows;
  float* const scratch = workspace + correlations_bytes(plan) / 4;
  for (int64_t n = part.first_sample; n < part.end_sample; ++n) {
    for (int64_t row = part.first_row; row < part.end_row; ++row)
      interleave(plan, result + (n * rows + row) * c.result_plane, scratch, isa);
  }
}

WeightCut cut_weight_grad(const WeightCorrelation& c) {
  const ConvWindows& w = c.windows;
  const auto taps = static_cast<int64_t>(w.taps.size());
  const int64_t depth = w.depth(), out = w.groups * c.rows;
  const bool in_taps = c.result_row == 1;
  WeightCut cut{w.groups, w.channels, depth};
  const double work = static_cast<double>(w.groups * depth) * static_cast<double>(c.rows) *
                      static_cast<double>(w.batch * w.positions());
  const auto worth = static_cast<int64_t>(std::min(work / kWorthwhile, 1e9));
  const int64_t max = std::clamp<int64_t>(
      std::min(worth, std::max<int64_t>(2, w.groups * depth / kMinSteps)), 1, kMaxConvTasks);
  if (max == 1) return cut;
  if (w.groups > 1) {
    // The lanes of small groups are full.
    cut.groups = ceil_div(w.groups, max);
    if (internal::is_depthwise(c))
      cut.groups = std::min(w.groups, round_up(cut.groups, internal::kGroupLanes));
    cut.tasks = ceil_div(w.groups, cut.groups);
    cut.stride = cut.groups * c.rows * (in_taps ? 1 : depth) * 4;
    cut.pitch = in_taps ? out * 4 : 0;
  } else if (w.channels >= kConvManyChannels || (!in_taps && w.channels > 1)) {
    const int64_t min = std::min(kMinChannels, w.channels);
    cut.channels = std::max(min, ceil_div(w.channels, max));
    cut.steps = cut.channels * taps;
    cut.tasks = ceil_div(w.channels, cut.channels);
    cut.stride = cut.channels * (in_taps ? out : taps) * 4;
    cut.pitch = w.channels * (in_taps ? out : taps) * 4;
  } else if (in_taps) {
    cut.steps = ceil_div(depth, max);
    cut.tasks = ceil_div(depth, cut.steps);
    cut.stride = cut.steps * out * 4;
  } else {
    cut.steps = ceil_div(taps, max);
    cut.tasks = ceil_div(taps, cut.steps);
    cut.stride = cut.steps * 4;
    cut.pitch = taps * 4;
  }
  return cut;
}

WeightPart part_of(const WeightCut& cut, const WeightCorrelation& c, int64_t task) {
  const ConvWindows& w = c.windows;
  WeightPart part{0, w.groups, 0, w.channels, 0, w.depth()};
  if (cut.groups < w.groups) {
    part.first_group = task * cut.groups;
    part.end_group = std::min(w.groups, part.first_group + cut.groups);
  } else if (cut.channels < w.channels) {
    part.first_channel = task * cut.channels;
    part.channels = std::min(cut.channels, w.channels - part.first_channel);
    part.end_step = static_cast<int64_t>(w.taps.size()) * part.channels;
  } else if (cut.steps < w.depth()) {
    part.first_step = task * cut.steps;
    part.end_step = std::min(w.depth(), part.first_step + cut.steps);
  }
  return part;
}

}  // namespace sluice::cpu
