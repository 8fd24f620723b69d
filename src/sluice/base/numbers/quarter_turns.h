#pragma once
#include <cstdint>

namespace sluice {

/// An angle x = π/2·(4k + quarter) + rest for some integer k, with |rest| <= π/4.
struct QuarterTurns {
  int32_t quarter = 0;  ///< From 0 to 3.
  float rest = 0;       ///< Rounded once.
};

/// Splits a finite angle in radians of any size, as M. Payne and R. Hanek, "Radian reduction for
/// trigonometric functions" (1983): multiplies it by those bits of 2/π that matter.
QuarterTurns quarter_turns(float x);

}  // namespace sluice
