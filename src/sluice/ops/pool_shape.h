#pragma once
#include <array>
#include <string_view>

#include "sluice/ir/op_def.h"
#include "sluice/ops/pooling.h"

/// The sizes of pools, which shape rules and kernels share.
namespace sluice::ops {

/// One spatial axis of a pool. Output position o has the window of input positions start(o) +
/// dilation·tap, 0 <= tap < kernel. Those inside the input have taps [first_tap(o), end_tap(o)).
struct PoolAxis {
  int64_t x = 1;  ///< Positions of the input.
  int64_t y = 1;  ///< Positions of the output.
  int64_t kernel = 1;
  int64_t stride = 1;
  int64_t dilation = 1;
  int64_t padding = 0;      ///< Positions before the first element of the input.
  int64_t padding_end = 0;  ///< Positions after its last element.

  int64_t start(int64_t o) const { return o * stride - padding; }
  int64_t first_tap(int64_t o) const;
  int64_t end_tap(int64_t o) const { return taps_below(o, x); }
  /// Number of taps of output position o at positions below `limit`.
  int64_t taps_below(int64_t o, int64_t limit) const;
};

/// The sizes of a pool with 3 spatial axes: those that the operands lack come first, with size 1.
struct PoolShape {
  int64_t planes = 0;  ///< batch·channels.
  std::array<PoolAxis, 3> axes;
  int64_t divisor = 0;         ///< As in AveragePoolOptions.
  bool count_padding = false;  ///< As in AveragePoolOptions.

  int64_t x_positions() const { return axes[0].x * axes[1].x * axes[2].x; }
  int64_t y_positions() const { return axes[0].y * axes[1].y * axes[2].y; }
  int64_t tap_count() const { return axes[0].kernel * axes[1].kernel * axes[2].kernel; }
  /// Factor of axis a, at output position o, of the number that divides an average.
  int64_t count(size_t a, int64_t o) const;
};

/// Returns the sizes of one of the pooling ops above, whose shapes agree.
PoolShape pool_shape(const OpView& op);
/// Return the sizes of a pool of x. Error{kUsage} that names the operator `name` and the constraint
/// (C2) to (C6) if shape and options do not agree.
PoolShape pool_shape(const TensorSpec& x, const PoolOptions& o, std::string_view name);
PoolShape pool_shape(const TensorSpec& x, const AveragePoolOptions& o, std::string_view name);

}  // namespace sluice::ops
