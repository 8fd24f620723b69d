#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace sluice {

/// Element types. f16 and bf16 are storage types: they are loaded to f32 and rounded once on store.
/// f64 and i64 exist on the host side only.
enum class DType : uint8_t { kF32, kF16, kBF16, kI32, kU32, kU8, kBool, kF64, kI64 };

inline constexpr DType f32 = DType::kF32;
inline constexpr DType f16 = DType::kF16;
inline constexpr DType bf16 = DType::kBF16;
inline constexpr DType i32 = DType::kI32;
inline constexpr DType u32 = DType::kU32;
inline constexpr DType u8 = DType::kU8;
inline constexpr DType boolean = DType::kBool;
inline constexpr DType f64 = DType::kF64;
inline constexpr DType i64 = DType::kI64;

/// Bytes of one element.
int64_t size_of(DType dtype);
/// numpy's name: "float32", "bool".
std::string_view name_of(DType dtype);
/// The dtype of a numpy name or of our short one ("f32"); Error{kUsage} listing the known ones otherwise.
DType dtype_from_name(std::string_view name);

/// f32, f16, bf16 or f64.
bool is_float(DType dtype);
/// An integer type; bool is not one.
bool is_integer(DType dtype);

/// Whether `dtype` holds `value`: integers hold whole numbers of their range, bool holds 0 and 1.
/// Floating point rounds; it holds NaN, infinities and what does not round to an infinity.
bool takes(DType dtype, double value);
/// The numbers that `dtype` takes, for errors: "a whole number in [0, 255]".
std::string taken_by(DType dtype);

/// IEEE binary16 and bfloat16, rounded to nearest even, denormals kept. NaN stays NaN with the bits of its payload that
/// fit; narrowing and half_to_float make it quiet.
uint16_t float_to_half(float value);
float half_to_float(uint16_t bits);
uint16_t float_to_bfloat(float value);
float bfloat_to_float(uint16_t bits);

/// `value` as it reads back after being stored as `dtype` (f16 and bf16 round, others return it).
float round_to(DType dtype, float value);

/// Calls `f(T{})` with the element type on the host: float, uint16_t (f16, bf16), int32_t, uint32_t, uint8_t, bool,
/// double, int64_t.
template <typename F>
decltype(auto) visit_storage(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kF32:
      return f(float{});
    case DType::kF16:
    case DType::kBF16:
      return f(uint16_t{});
    case DType::kI32:
      return f(int32_t{});
    case DType::kU32:
      return f(uint32_t{});
    case DType::kU8:
      return f(uint8_t{});
    case DType::kBool:
      return f(bool{});
    case DType::kF64:
      return f(double{});
    case DType::kI64:
      break;
  }
  return f(int64_t{});
}

}  // namespace sluice
