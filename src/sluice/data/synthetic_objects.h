#pragma once
#include <cstdint>

#include "sluice/data/samples.h"

namespace sluice::data {

/// Generates `n` >= 1 coloured images of objects, (n, 3, 32, 32) f32, normalised like CIFAR-10. The
/// labels are (n) i32 in 0..9, about equally frequent: a disk, square, triangle, ring or cross,
/// plain (0..4) or striped (5..9). Place, size, angle, both colours and noise are random, so a
/// colour does not show the label. Sample k is a pure function of (seed, k), with the same bits on
/// every machine. Error{kUsage} if n < 1.
Samples synthetic_objects(int64_t n, uint64_t seed);

}  // namespace sluice::data
