#pragma once
#include <cstdint>

#include "sluice/base/rng.h"
#include "sluice/planner/problem.h"

namespace sluice::planner {

/// Made-up problems for tests and benches; the same arguments give the same problem.

enum class Sizes {
  kLogUniform,  ///< 64 bytes to 16 MiB, uniform in the logarithm, rounded down to multiples of 64.
  kUniform,     ///< 64 bytes to 16 MiB, multiples of 64.
};

/// `count` buffers born at uniform steps of [0, count) that live `mean` steps on average,
/// geometrically distributed, at least 1. Alignment 64.
Problem random_lifetimes(int64_t count, double mean, Sizes sizes, Seed seed);

/// A rectangle of time and bytes, cut into pieces again and again. A piece is a buffer, so a plan
/// of height `bytes` is known, and the live-set bound is `bytes` too.
struct Cuts {
  int64_t count = 0;
  int64_t steps = 0;
  int64_t bytes = 0;
  enum class Next {
    kLargest,               ///< The piece of the largest area.
    kByArea,                ///< A random one, with a probability in proportion to its area.
    kAny,                   ///< A random one.
  } next = Next::kLargest;  ///< The piece to cut.
  /// Percent of cuts that make five pieces, four around one, instead of two. No straight cut goes
  /// through those.
  int64_t pinwheels = 0;
  /// Percent of pieces that are left out, but none that lives at a step drawn. Without them, no
  /// byte may be wasted at any step.
  int64_t holes = 0;
};
Problem cut_rectangle(const Cuts& cuts, Seed seed);

/// cut_rectangle() with straight cuts of the largest piece.
Problem perfect_cuts(int64_t count, int64_t steps, int64_t bytes, Seed seed);

/// Buffers of training a network of `layers` layers, forward then backward: layer k's activation
/// from its forward step to its backward step, scratch at each step, gradients between neighbouring
/// backward steps. Alignment 64.
Problem nested_lifetimes(int64_t layers, Seed seed);

}  // namespace sluice::planner
