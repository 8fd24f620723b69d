#include "sluice/cpu/fused/loop.h"
#include "sluice/cpu/simd/vector_kernels_inl.h"

SLUICE_MAP_KERNELS(sluice::cpu::Loops)
