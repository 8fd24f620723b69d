#include "sluice/base/dtype.h"

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

#include "sluice/base/error.h"
#include "sluice/base/ids/ids.h"

namespace sluice {
namespace {

struct DTypeInfo {
  DType dtype;
  int64_t size;
  std::string_view name;
  std::string_view short_name;
};

constexpr std::array<DTypeInfo, 9> kRows{{
    {DType::kF32, 4, "float32", "f32"},
    {DType::kF16, 2, "float16", "f16"},
    {DType::kBF16, 2, "bfloat16", "bf16"},
    {DType::kI32, 4, "int32", "i32"},
    {DType::kU32, 4, "uint32", "u32"},
    {DType::kU8, 1, "uint8", "u8"},
    {DType::kBool, 1, "bool", "bool"},
    {DType::kF64, 8, "float64", "f64"},
    {DType::kI64, 8, "int64", "i64"},
}};

const DTypeInfo& row(DType dtype) { return at(kRows, dtype); }

}  // namespace

int64_t size_of(DType dtype) { return row(dtype).size; }
std::string_view name_of(DType dtype) { return row(dtype).name; }

DType dtype_from_name(std::string_view name) {
  for (const DTypeInfo& r : kRows) {
    if (name == r.name || name == r.short_name) return r.dtype;
  }
  fail(ErrorKind::kUsage,
       "unknown dtype '{}'; known: float32 float16 bfloat16 int32 uint32 uint8 bool float64 int64",
       name);
}

bool is_float(DType dtype) { return dtype == f32 || dtype == f16 || dtype == bf16 || dtype == f64; }
bool is_integer(DType dtype) { return !is_float(dtype) && dtype != boolean; }

bool can_store(DType dtype, double value) {
  if (is_float(dtype)) {
    return !std::isfinite(value) || dtype == f64 ||
           std::isfinite(round_to(dtype, static_cast<float>(value)));
  }
  return visit_storage(dtype, [&]<typename T>(T) {
    // Compare with 2^n: a double represents it exactly, but may not represent the maximum 2^n - 1.
    const auto lowest = static_cast<double>(std::numeric_limits<T>::min());
    const double end = std::ldexp(1.0, std::numeric_limits<T>::digits);
    return value == std::trunc(value) && lowest <= value && value < end;
  });
}

std::string taken_by(DType dtype) {
  if (dtype == boolean) return "0 or 1";
  return visit_storage(dtype, [&]<typename T>(T) -> std::string {
    if (is_float(dtype)) return fmt::format("a number of {}'s range", name_of(dtype));
    return fmt::format("a whole number in [{}, {}]", std::numeric_limits<T>::min(),
                       std::numeric_limits<T>::max());
  });
}

uint16_t float_to_half(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u)
    return static_cast<uint16_t>(sign | 0x7e00u | (magnitude >> 13 & 0x1ffu));  // NaN
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // rounds to infinity
  if (magnitude < 0x38800000u) {  // subnormal half or zero: let float addition do the rounding
    const float scaled = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(scaled) - 0x3f000000u));
  }
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

float half_to_float(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fu;
  const uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 0x1f) {
    const uint32_t quiet = mantissa != 0 ? 0x400000u : 0;
    return std::bit_cast<float>(sign | 0x7f800000u | quiet | (mantissa << 13));
  }
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
}

uint16_t float_to_bfloat(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

float bfloat_to_float(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

float round_to(DType dtype, float value) {
  if (dtype == f16) return half_to_float(float_to_half(value));
  if (dtype == bf16) return bfloat_to_float(float_to_bfloat(value));
  return value;
}

}  // namespace sluice
