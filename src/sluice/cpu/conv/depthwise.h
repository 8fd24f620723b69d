#pragma once
#include <array>
#include <cstdint>

#include "sluice/cpu/conv/conv.h"

/// Kernels for convolutions whose groups are too small for a product of matrices. Depthwise
/// convolutions have one row and one channel in each group.
///
/// The sources of some rows of the grid are packed with the zeros around them. A tap is then an
/// offset into the packed sources, which is the same one for all positions.
namespace sluice::cpu::internal {

/// How the sources of some rows of the grid are packed. Elements that are equal modulo two steps of
/// height and width are in a region of their own, and so is each depth under a tap.
///
/// Element i of a packed row is element low + i of a row of the region, or a zero beyond its ends.
/// Zeros at the end of a row and at the start of the next one share memory.
struct PackedSource {
  static constexpr size_t kMax = 64;  ///< Taps.
  struct Tap {
    int64_t region = 0;
    int64_t element = 0;  ///< The element under the tap at the first position.
  };
  Extent step{1, 1, 1};  ///< The entry of the depth is not used.
  int64_t low = 0;
  int64_t length = 0;  ///< Elements of a row.
  int64_t pitch = 0;   ///< Elements from one row to the next.
  int64_t above = 0;   ///< The first packed row is row `above` of the region for row 0 of the grid.
  int64_t more = 0;    ///< Rows that are packed in addition to those that a single tap reads.
  int64_t regions = 0;
  /// For each region: its depth for depth 0 of the grid, and the first row and column of its
  /// elements.
  std::array<Extent, kMax> region;
  std::array<Tap, kMax> tap;

  /// Returns the elements of a region of which a tap reads `rows` rows.
  int64_t elements(int64_t rows) const { return (rows + more) * pitch + length; }
};

/// How correlate() uses its workspace for small groups. Elements are separated modulo the step of
/// the windows, so that the sources of adjacent positions are adjacent.
struct DepthwisePlan {
  PackedSource packed;
  int64_t rows = 0;           ///< Rows of the grid that are packed at a time.
  int64_t region_floats = 0;  ///< Floats of a region of one channel.
  int64_t source_floats = 0;
  int64_t lanes_floats = 0;  ///< One for each vector of results.
};
/// Whether depthwise_on() computes a correlation.
bool is_depthwise(const Correlation& c);
DepthwisePlan depthwise_plan_of(const Correlation& c);
/// correlate() for small groups.
template <Isa kIsa>
void depthwise_on(const Correlation& c, const CorrelationOperands& operands, const ConvPart& part,
                  float* workspace);

/// How correlate_weights() uses its workspace for small groups. A packed element is a vector with
/// one lane for each of at most kGroupLanes groups. They are not separated by width and height.
struct DepthwiseWeightsPlan {
  PackedSource packed;
  int64_t rows = 0;             ///< Rows of the grid that are packed at a time.
  int64_t region_elements = 0;  ///< Vectors of a region.
  int64_t source_floats = 0;
  int64_t line_rows = 0;  ///< Rows of the source that are transposed at a time.
  int64_t line_floats = 0;
  int64_t y_floats = 0;
  int64_t chain_floats = 0;
};
inline constexpr int64_t kGroupLanes = 16;
/// Whether depthwise_weights_on() computes a correlation.
bool is_depthwise(const WeightCorrelation& c);
DepthwiseWeightsPlan depthwise_plan_of(const WeightCorrelation& c);
/// correlate_weights() for small groups.
template <Isa kIsa>
void depthwise_weights_on(const WeightCorrelation& c, const WeightCorrelationOperands& operands,
                          const WeightPart& part, float* workspace);

}  // namespace sluice::cpu::internal
