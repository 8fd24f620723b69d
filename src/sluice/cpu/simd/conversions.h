#pragma once
#include <cstddef>
#include <cstdint>

#include "sluice/base/dtype.h"
#include "sluice/cpu/simd/isa.h"

/// Conversions between what memory holds and f32: the bits of the operator Cast, which for f16 and
/// bf16 are those of base/dtype.h. Kernels on f16 and bf16 widen, compute in f32 and narrow once, a
/// block at a time.
namespace sluice::cpu {

/// to[i] = from[i] for i < n; the two do not overlap.
using WidenFn = void (*)(const std::byte* from, float* to, int64_t n);
using NarrowFn = void (*)(const float* from, std::byte* to, int64_t n);

namespace internal {
struct ConversionKernels {
  WidenFn widen;
  NarrowFn narrow;
};
/// The kernels of one instruction set (conversions.isa.cc), by number of the dtype.
template <Isa kIsa>
struct ConversionTable {
  static const ConversionKernels kByDType[7];
};
}  // namespace internal

/// Whether operators compute on this dtype in f32: f32, f16 or bf16.
inline bool computes_in_f32(DType dtype) { return dtype == f32 || dtype == f16 || dtype == bf16; }

/// Elements of a dtype that devices have become f32.
WidenFn widen_kernel(DType dtype, Isa isa = current_isa());
/// f32 becomes elements of a dtype that devices have: rounded to nearest even for floating point;
/// for integers toward zero, the nearest that fits for what does not, 0 for NaN; for bool whether it
/// is not zero.
NarrowFn narrow_kernel(DType dtype, Isa isa = current_isa());

}  // namespace sluice::cpu
