#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace sluice {

/// Element types. f16 and bf16 are storage types: a kernel computes in f32 and rounds once when it
/// stores. Only the host supports f64 and i64.
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
/// The name that numpy uses: "float32", "bool".
std::string_view name_of(DType dtype);
/// Returns the dtype of a numpy name ("float32") or a short name ("f32"). Error{kUsage} listing the
/// known names for any other.
DType dtype_from_name(std::string_view name);

/// f32, f16, bf16 or f64.
bool is_float(DType dtype);
/// Whether `dtype` is an integer type; bool is not.
bool is_integer(DType dtype);

/// Whether `dtype` can store `value`. An integer type stores whole numbers in its range, bool
/// stores 0 and 1. A floating-point type rounds: it stores NaN, infinities and every finite value
/// that does not round to an infinity.
bool can_store(DType dtype, double value);
/// Describes the numbers that `dtype` can store, for errors: "a whole number in [0, 255]".
std::string taken_by(DType dtype);

/// Convert between float and the bits of IEEE binary16 (half) or bfloat16. Narrowing rounds to
/// nearest even; denormals are kept. NaN stays NaN and keeps the payload bits that fit. Every
/// conversion except bfloat_to_float makes NaN quiet.
uint16_t float_to_half(float value);
float half_to_float(uint16_t bits);
uint16_t float_to_bfloat(float value);
float bfloat_to_float(uint16_t bits);

/// Returns the value that is loaded after `value` is stored as `dtype`. f16 and bf16 round; any
/// other dtype returns `value` unchanged.
float round_to(DType dtype, float value);

/// Calls `f(T{})`, where T is the host type that stores an element of `dtype`: float, uint16_t (f16
/// and bf16), int32_t, uint32_t, uint8_t, bool, double or int64_t. Returns the result of `f`.
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
