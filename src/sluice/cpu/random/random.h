#pragma once
#include <cstddef>
#include <cstdint>

#include "sluice/base/rng.h"
#include "sluice/cpu/simd/isa.h"
#include "sluice/ops/random.h"

/// Random numbers of base/rng.h for every instruction set.
namespace sluice::cpu {

/// Reads a seed from an operand, which is uint32 of shape (2,).
Seed read_seed(const std::byte* operand);

/// Computes words[i] = random_bits(key, first + i) for i < n.
void random_words(Seed key, uint64_t first, int64_t n, uint32_t* words, Isa isa = current_isa());

/// Computes y[i] = x[i]·scale where element first + i is kept, else 0, for i < n. y may be x.
void dropout(const ops::DropoutParams& params, Seed key, uint64_t first, const float* x, float* y,
             int64_t n, Isa isa = current_isa());

/// Computes y[i] = low + range·u with the number u = random_unit(key, first + i), for i < n.
void random_uniform(float low, float range, Seed key, uint64_t first, float* y, int64_t n,
                    Isa isa = current_isa());

namespace internal {
/// The kernels of one instruction set (random.isa.cc).
template <Isa kIsa>
struct RandomKernels {
  static void words(Seed key, uint64_t first, int64_t n, uint32_t* words);
  static void dropout(const ops::DropoutParams& params, Seed key, uint64_t first, const float* x,
                      float* y, int64_t n);
  static void uniform(float low, float range, Seed key, uint64_t first, float* y, int64_t n);
};
}  // namespace internal

}  // namespace sluice::cpu
