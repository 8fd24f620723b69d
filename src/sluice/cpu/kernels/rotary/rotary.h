#pragma once
#include <cstdint>

#include "sluice/cpu/simd/isa.h"

namespace sluice::cpu {

/// Rows of a rotary position embedding (ops/rotary.h).
struct RotaryRows {
  int64_t first = 0;   ///< Number of the first row; it has the position first mod length.
  int64_t rows = 0;    ///< Rows to compute.
  int64_t length = 1;  ///< Rows of the table.
  int64_t size = 0;    ///< Elements of a row of x.
  int64_t half = 0;    ///< Pairs of a row.
  bool interleaved = false;
  bool inverse = false;
};

namespace internal {
/// The kernel of one instruction set (rotary.isa.cc).
template <Isa kIsa>
struct RotaryKernels {
  /// Rotates rows; `x` and `y` point to row `first`, `table` to position 0. y may be x.
  static void run(const RotaryRows& shape, const float* x, const float* table, float* y);
};
}  // namespace internal

}  // namespace sluice::cpu
