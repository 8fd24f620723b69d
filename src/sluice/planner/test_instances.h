#pragma once
#include <cstdint>

#include "sluice/base/rng.h"
#include "sluice/planner/problem.h"

namespace sluice::planner {

/// Generated problems for tests and benches. Equal arguments give equal problems.

enum class Sizes {
  kLogUniform,  ///< 64 bytes to 16 MiB, uniform in the logarithm, rounded down to multiples of 64.
  kUniform,     ///< 64 bytes to 16 MiB, multiples of 64.
};

/// Draws `count` buffers of alignment 64. Births are uniform in [0, count). Lifetimes are at least
/// 1 step, on average `mean` steps, and geometrically distributed.
Problem random_lifetimes(int64_t count, double mean, Sizes sizes, Seed seed);

/// A rectangle of time and bytes that is cut into pieces repeatedly. Each piece is a buffer, so a
/// plan of height `bytes` is known. The live-set bound is `bytes` too.
struct Cuts {
  int64_t count = 0;
  int64_t steps = 0;
  int64_t bytes = 0;
  enum class Next {
    kLargest,               ///< The piece of the largest area.
    kByArea,                ///< A random piece, with a probability proportional to its area.
    kAny,                   ///< A random piece.
  } next = Next::kLargest;  ///< Choice of the piece to cut.
  /// Percent of cuts that make five pieces (four around one) instead of two. No straight cut
  /// divides such five pieces.
  int64_t pinwheels = 0;
  /// Percent of pieces that are removed, except at one random step. With 0, a plan of height
  /// `bytes` wastes no byte at any step.
  int64_t holes = 0;
};
Problem cut_rectangle(const Cuts& cuts, Seed seed);

/// Calls cut_rectangle(), which makes straight cuts of the largest piece.
Problem perfect_cuts(int64_t count, int64_t steps, int64_t bytes, Seed seed);

/// Makes the buffers of training a network of `layers` layers, forward then backward. The
/// activation of a layer lives from its forward to its backward step, scratch lives for one forward
/// step, and a gradient lives between neighbouring backward steps. Alignment 64.
Problem nested_lifetimes(int64_t layers, Seed seed);

}  // namespace sluice::planner
