#pragma once
#include <cstdint>

#include "sluice/data/dataset.h"

namespace sluice::data {

/// `n` >= 1 generated digits that look hand-drawn: images (n, 28, 28) f32 normalised as MNIST's,
/// labels (n) i32 in 0..9, about as many of each. Every digit is a few smooth strokes whose control
/// points wobble, bent and slanted at random, drawn with a pen of random width, with noise; digits
/// lie in the middle 20 x 20 pixels or so, as MNIST's do. Sample k is a pure function of (seed, k),
/// whatever `n` is, with the same bits on every machine.
Dataset synthetic_digits(int64_t n, uint64_t seed);

}  // namespace sluice::data
