#pragma once
#include <cstddef>
#include <cstdint>

#include "sluice/base/dtype.h"
#include "sluice/cpu/simd/isa.h"

/// Conversions between the dtypes of stored elements and f32. They compute the same bits as the
/// operator Cast and, for f16 and bf16, as base/dtype.h. Kernels on f16 and bf16 widen a block,
/// compute it in f32 and narrow it once.
namespace sluice::cpu {

/// Convert to[i] = from[i] for i < n. `from` and `to` must not overlap.
using WidenFn = void (*)(const std::byte* from, float* to, int64_t n);
using NarrowFn = void (*)(const float* from, std::byte* to, int64_t n);
/// Computes to[i] = from[i], rounded to a dtype, for i < n. `to` may be `from`.
using RoundFn = void (*)(const float* from, float* to, int64_t n);

namespace internal {
struct ConversionKernels {
  WidenFn widen;
  NarrowFn narrow;
  RoundFn round;
};
/// The kernels of one instruction set (conversions.isa.cc), indexed by dtype.
template <Isa kIsa>
struct ConversionTable {
  static const ConversionKernels kByDType[7];
};
}  // namespace internal

/// Returns whether operators on this dtype compute in f32: f32, f16 or bf16.
inline bool computes_in_f32(DType dtype) { return dtype == f32 || dtype == f16 || dtype == bf16; }

/// Returns the kernel that converts elements of `dtype` to f32. `dtype` must not be f64 or i64.
WidenFn widen_kernel(DType dtype, Isa isa = current_isa());
/// Returns the kernel that converts f32 to elements of `dtype`, which must not be f64 or i64.
/// Floating point: rounds to nearest even. Integers: rounds toward zero, saturates values that do
/// not fit, and converts NaN to 0. bool: true if the value is not zero.
NarrowFn narrow_kernel(DType dtype, Isa isa = current_isa());

/// Returns the kernel that rounds f32 to values of `dtype`, as narrow_kernel() does.
RoundFn round_kernel(DType dtype, Isa isa = current_isa());

/// How an operand of kernels that compute in f32 is stored.
struct Element {
  int64_t size = 4;           ///< Bytes.
  WidenFn widen = nullptr;    ///< Null for f32.
  NarrowFn narrow = nullptr;  ///< Null for f32.
  RoundFn round = nullptr;    ///< Null for f32.

  bool is_f32() const { return widen == nullptr; }
};

/// Returns the elements of `dtype`, which must not be f64 or i64.
Element element_of(DType dtype);

}  // namespace sluice::cpu
