#include "sluice/cpu/random/random.h"

#include <cstring>

namespace sluice::cpu {
namespace {

// Calls f(kernels) with the RandomKernels of an instruction set.
template <typename F>
void with_kernels(Isa isa, F f) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx512) return f(internal::RandomKernels<Isa::kAvx512>{});
  if (isa == Isa::kAvx2) return f(internal::RandomKernels<Isa::kAvx2>{});
#endif
  f(internal::RandomKernels<Isa::kBase>{});
}

}  // namespace

Seed read_seed(const std::byte* operand) {
  uint32_t words[2];
  std::memcpy(words, operand, sizeof words);
  return {words[0], words[1]};
}

void random_words(Seed key, uint64_t first, int64_t n, uint32_t* words, Isa isa) {
  with_kernels(isa, [&](auto kernels) { kernels.words(key, first, n, words); });
}

void dropout(const ops::DropoutParams& params, Seed key, uint64_t first, const float* x, float* y,
             int64_t n, Isa isa) {
  with_kernels(isa, [&](auto kernels) { kernels.dropout(params, key, first, x, y, n); });
}

void random_uniform(float low, float range, Seed key, uint64_t first, float* y, int64_t n,
                    Isa isa) {
  with_kernels(isa, [&](auto kernels) { kernels.uniform(low, range, key, first, y, n); });
}

}  // namespace sluice::cpu
