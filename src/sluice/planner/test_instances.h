#pragma once
#include <cstdint>

#include "sluice/base/rng.h"
#include "sluice/planner/problem.h"

namespace sluice::planner {

/// Generated problems for tests and benches. Equal arguments produce equal problems.

enum class Sizes {
  kLogUniform,  ///< 64 bytes to 16 MiB, uniform in the logarithm, rounded down to multiples of 64.
  kUniform,     ///< 64 bytes to 16 MiB, multiples of 64.
};

/// Draws `count` buffers of alignment 64. Births are uniform in [0, count). Lifetimes are at least
/// 1 step, on average `mean` steps, and geometrically distributed.
Problem random_lifetimes(int64_t count, double mean, Sizes sizes, Seed seed);

/// Cuts a rectangle of `steps` by `bytes` into `count` pieces: always the largest one, in two at a
/// random place. Each piece is a buffer, so a plan of height `bytes` is known. It wastes no byte.
/// The live-set bound is `bytes` too.
Problem perfect_cuts(int64_t count, int64_t steps, int64_t bytes, Seed seed);

/// Makes the buffers of training a network of `layers` layers, forward then backward. The
/// activation of a layer lives from its forward to its backward step, scratch lives for one forward
/// step, and a gradient lives between neighbouring backward steps. Alignment 64.
Problem nested_lifetimes(int64_t layers, Seed seed);

}  // namespace sluice::planner
