#include "sluice/cpu/simd/conversions.h"

#include "sluice/base/error.h"

namespace sluice::cpu {
namespace {

const internal::ConversionKernels& kernels(DType dtype, Isa isa) {
  SLUICE_CHECK(dtype != f64 && dtype != i64);
  const auto number = static_cast<size_t>(dtype);
#if defined(__x86_64__)
  if (isa == Isa::kAvx512) return internal::ConversionTable<Isa::kAvx512>::kByDType[number];
  if (isa == Isa::kAvx2) return internal::ConversionTable<Isa::kAvx2>::kByDType[number];
#endif
  return internal::ConversionTable<Isa::kBase>::kByDType[number];
}

}  // namespace

WidenFn widen_kernel(DType dtype, Isa isa) { return kernels(dtype, isa).widen; }
NarrowFn narrow_kernel(DType dtype, Isa isa) { return kernels(dtype, isa).narrow; }

}  // namespace sluice::cpu
