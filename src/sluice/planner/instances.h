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

/// A rectangle of `steps` by `bytes`, its largest piece cut at a random place into two until there
/// are `count`. The pieces fill it, so the least height is the bound, `bytes`, and no byte may be
/// wasted at any step.
Problem perfect_cuts(int64_t count, int64_t steps, int64_t bytes, Seed seed);

/// What training a network of `layers` layers keeps, forward then backward: layer k's activation
/// from its forward step to its backward step, scratch at each step, gradients between neighbouring
/// backward steps. Alignment 64.
Problem nested_lifetimes(int64_t layers, Seed seed);

}  // namespace sluice::planner
