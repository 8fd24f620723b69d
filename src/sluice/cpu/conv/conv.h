#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "sluice/cpu/gemm/gemm.h"
#include "sluice/cpu/simd/isa.h"

namespace sluice::cpu {

/// Sizes or positions along depth, height and width.
using Extent = std::array<int64_t, 3>;

/// One tap of a convolution's window.
struct ConvTap {
  Extent offset{};     ///< Position of the source under the tap, for position 0 of the grid.
  int64_t weight = 0;  ///< Floats from the first tap of a weight to this one.
};

/// The windows of a convolution. Position p of the grid reads the source at p·step + offset of each
/// tap; positions outside the source are zeros. A source has planes of `source` elements, one for
/// each sample and channel.
struct ConvWindows {
  int64_t batch = 0;
  int64_t groups = 1;
  int64_t channels = 0;  ///< Channels of the source in a group.
  Extent source{1, 1, 1};
  Extent grid{1, 1, 1};
  Extent step{1, 1, 1};
  std::vector<ConvTap> taps;  ///< Their weights are equally far apart.

  /// Strips of positions that all rows of the result have, in all samples.
  int64_t strips() const;
  int64_t plane() const { return source[0] * source[1] * source[2]; }
  int64_t positions() const { return grid[0] * grid[1] * grid[2]; }
  /// Rows of the matrix under all windows of a group: (tap, channel), in this order.
  int64_t depth() const { return static_cast<int64_t>(taps.size()) * channels; }
};

/// The sizes of correlate(): result(row, p) = Σ weight(row, tap, channel) · source under the tap,
/// for the rows (channels of the result) of each group and all positions p of the grid.
struct Correlation {
  ConvWindows windows;
  int64_t rows = 0;  ///< Channels of the result in a group.
  /// Floats from one group, row and channel of the weight to the next.
  int64_t weight_group = 0, weight_row = 0, weight_channel = 0;
  /// Element (sample, row of all groups, p) is result[(sample·groups·rows + row)·result_plane + p].
  int64_t result_plane = 0;
};

struct CorrelationOperands {
  const float* source = nullptr;
  const float* weight = nullptr;
  float* result = nullptr;
  /// Gets blocks of finished elements: row (sample·groups·rows + row), column p.
  GemmEpilogue epilogue = {};
};

/// The part of a correlation that one task computes.
struct ConvPart {
  int64_t first_sample = 0, end_sample = 0;
  int64_t first_row = 0, end_row = 0;            ///< Rows of all groups.
  int64_t first_position = 0, end_position = 0;  ///< The first one is a multiple of kConvStrip.
};

/// Positions that one tile computes.
inline constexpr int64_t kConvStrip = internal::kPanel;
/// Few strips: packing a weight for them would take about as long as their products.
inline constexpr int64_t kFewConvStrips = 4;

/// Computes a part of the result. Calls for disjoint parts may run concurrently, each with its own
/// workspace.
///
/// Bits: an element is the chain s ← fma(weight, source, s) in ascending (tap, channel), from +0.
/// It does not depend on the part or the instruction set.
void correlate(const Correlation& c, const CorrelationOperands& operands, const ConvPart& part,
               float* workspace, Isa isa = current_isa());
int64_t correlate_workspace_bytes(const Correlation& c);

/// Writes rows of `width` elements, `to_stride` floats apart, whose even elements are the next ones
/// of `even` and whose odd elements are the next ones of `odd`.
void join_columns(const float* even, const float* odd, int64_t rows, int64_t width, float* to,
                  int64_t to_stride, Isa isa = current_isa());

/// The sizes of correlate_weights(): result(tap, channel, row) = Σ over samples and positions p of
/// source under the tap · y(sample, row, p), for each group.
struct WeightCorrelation {
  ConvWindows windows;
  int64_t rows = 0;  ///< Channels of y in a group.
  /// Floats from one group, row and channel of the result to the next. The taps hold the offset of
  /// each tap.
  int64_t result_group = 0, result_row = 0, result_channel = 0;
};

struct WeightCorrelationOperands {
  const float* source = nullptr;
  const float* y = nullptr;  ///< (batch, groups · rows, positions).
  float* result = nullptr;
};

/// The part of the weights that one task computes, for all rows of its groups. Its steps are (tap,
/// channel), counted over its channels. If a group has at least kConvManyChannels channels, a part
/// has all taps.
struct WeightPart {
  int64_t first_group = 0, end_group = 0;
  int64_t first_channel = 0, channels = 0;
  int64_t first_step = 0, end_step = 0;
  int64_t steps() const { return end_step - first_step; }
};

/// Channels that make tiles of channels under one tap high enough.
inline constexpr int64_t kConvManyChannels = 8;

/// Computes a part of the weights. Calls for disjoint parts may run concurrently, each with its own
/// workspace.
///
/// Bits: an element is the chain s ← fma(source, y, s) in ascending (sample, p), from +0. It does
/// not depend on the part or the instruction set.
void correlate_weights(const WeightCorrelation& c, const WeightCorrelationOperands& operands,
                       const WeightPart& part, float* workspace, Isa isa = current_isa());
/// Returns the workspace for parts with at most `steps` steps.
int64_t correlate_weights_workspace_bytes(const WeightCorrelation& c, int64_t steps);

namespace internal {

template <Isa kIsa>
void correlate_on(const Correlation& c, const CorrelationOperands& operands, const ConvPart& part,
                  float* workspace);
template <Isa kIsa>
void correlate_weights_on(const WeightCorrelation& c, const WeightCorrelationOperands& operands,
                          const WeightPart& part, float* workspace);
template <Isa kIsa>
void join_columns_on(const float* even, const float* odd, int64_t rows, int64_t width, float* to,
                     int64_t to_stride);

/// Steps of the chains that are packed at a time.
inline constexpr int64_t kConvDepth = 256;
/// Steps at a time of chains whose weights are read in place. The tiles prefetch the weights of the
/// next steps, which must stay in the L2 cache until then.
inline constexpr int64_t kConvDepthInPlace = 64;
/// Positions whose sources are packed at a time.
inline constexpr int64_t kConvGathered = 2 * kConvDepth;
/// Rows of a correlation whose weights are packed at a time.
inline constexpr int64_t kConvRows = 448;
/// Rows of y that are packed at a time for correlate_weights().
inline constexpr int64_t kConvColumns = 256;
/// Floats after a packed row that a whole vector may overwrite.
inline constexpr int64_t kConvSlack = 16;

/// How correlate() cuts the chains and uses its workspace.
struct CorrelationPlan {
  int64_t depth = 0;  ///< Steps of a block of the chains.
  int64_t rows = 0;   ///< Rows of a block.
  /// Tiles read the weights where they are: the rows of a step are adjacent, and the steps are
  /// equally far apart.
  bool in_place = false;
  int64_t weight_floats = 0;
  int64_t source_floats = 0;
};
CorrelationPlan plan_of(const Correlation& c);

/// How correlate_weights() uses its workspace.
struct WeightCorrelationPlan {
  int64_t depth = 0;         ///< Positions that are packed at a time, at most.
  int64_t columns = 0;       ///< Rows of y that are packed at a time, as columns.
  int64_t width = 0;         ///< Columns of a packed panel.
  bool by_channels = false;  ///< Tiles have channels under one tap as rows, not steps.
  bool shares = false;       ///< Taps that differ by rows of the grid share packed sources.
  bool direct = false;       ///< The chains are kept in the result.
  int64_t y_floats = 0;
  int64_t source_floats = 0;
  int64_t chain_floats = 0;  ///< For the given steps.
};
WeightCorrelationPlan plan_of(const WeightCorrelation& c, int64_t steps);

}  // namespace internal

}  // namespace sluice::cpu
