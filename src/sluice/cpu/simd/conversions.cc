#include "sluice/cpu/simd/conversions.h"

#include "sluice/base/error.h"
#include "sluice/base/ids/ids.h"

namespace sluice::cpu {
namespace {

const internal::ConversionKernels& kernels(DType dtype, Isa isa) {
  SLUICE_CHECK(dtype != f64 && dtype != i64);
#if defined(__x86_64__)
  if (isa == Isa::kAvx512) return at(internal::ConversionTable<Isa::kAvx512>::kByDType, dtype);
  if (isa == Isa::kAvx2) return at(internal::ConversionTable<Isa::kAvx2>::kByDType, dtype);
#endif
  return at(internal::ConversionTable<Isa::kBase>::kByDType, dtype);
}

}  // namespace

WidenFn widen_kernel(DType dtype, Isa isa) { return kernels(dtype, isa).widen; }
NarrowFn narrow_kernel(DType dtype, Isa isa) { return kernels(dtype, isa).narrow; }
RoundFn round_kernel(DType dtype, Isa isa) { return kernels(dtype, isa).round; }

Element element_of(DType dtype) {
  if (dtype == f32) return {};
  return {size_of(dtype), widen_kernel(dtype), narrow_kernel(dtype), round_kernel(dtype)};
}

}  // namespace sluice::cpu
