#pragma once
#include <cstdint>

#include "sluice/data/samples.h"

namespace sluice::data {

/// Generates `n` >= 1 digits that look hand-drawn. The images are (n, 28, 28) f32, normalised like
/// MNIST; the labels are (n) i32 in 0..9, about equally frequent. A digit consists of a few smooth
/// strokes. Their control points are moved at random, and the digit is bent and slanted at random.
/// It is drawn with a pen of random width, and noise is added. It covers about the middle 20 x 20
/// pixels, as in MNIST. Sample k is a pure function of (seed, k), with the same bits on every
/// machine. Error{kUsage} if n < 1.
Samples synthetic_digits(int64_t n, uint64_t seed);

}  // namespace sluice::data
