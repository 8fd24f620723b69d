#include "sluice/cpu/simd/vector_kernels_inl.h"
#include "sluice/ops/division_functors.h"
#include "sluice/ops/extreme_functors.h"
#include "sluice/ops/functors.h"
#include "sluice/ops/reduction_functors.h"
#include "sluice/ops/trigonometric_functors.h"
#include "sluice/ops/update_functors.h"

SLUICE_MAP_KERNELS(sluice::ops::functor::DivisionFunctors)
SLUICE_MAP_KERNELS(sluice::ops::functor::ElementwiseFunctors)
SLUICE_MAP_KERNELS(sluice::ops::functor::ExtremeFunctors)
SLUICE_MAP_KERNELS(sluice::ops::functor::ReductionFunctors)
SLUICE_MAP_KERNELS(sluice::ops::functor::TrigonometricFunctors)
SLUICE_MAP_KERNELS(sluice::ops::functor::UpdateFunctors)
