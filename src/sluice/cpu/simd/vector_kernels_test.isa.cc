#include "sluice/cpu/simd/test_functors.h"
#include "sluice/cpu/simd/vector_kernels_inl.h"

SLUICE_MAP_KERNEL(sluice::cpu::test::Blend)
SLUICE_MAP_KERNEL(sluice::cpu::test::Step)
SLUICE_MAP_KERNEL(sluice::cpu::test::Momentum)
SLUICE_MAP_KERNEL(sluice::cpu::test::Divided)
