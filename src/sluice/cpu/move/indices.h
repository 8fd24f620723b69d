#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "sluice/base/host_tensor.h"
#include "sluice/base/shape.h"

namespace sluice::cpu {

/// An operand of int32 or uint32 indices into an axis of `extent` elements.
class Indices {
 public:
  Indices() = default;
  Indices(const TensorSpec& spec, int64_t extent)
      : count_(spec.elements()), extent_(extent), signed_(spec.dtype == i32) {}

  int64_t count() const { return count_; }
  /// Returns index i of `operand`; -1 if it is outside the axis.
  int64_t position(const std::byte* operand, int64_t i) const {
    uint32_t word;
    std::memcpy(&word, operand + i * static_cast<int64_t>(sizeof word), sizeof word);
    const int64_t index = signed_ ? int64_t{static_cast<int32_t>(word)} : int64_t{word};
    return index >= 0 && index < extent_ ? index : -1;
  }

  /// Calls use(k, position(operand, first + k)) for k < n.
  template <typename Use>
  void for_positions(const std::byte* operand, int64_t first, int64_t n, Use use) const {
    const auto* const words = reinterpret_cast<const uint32_t*>(operand) + first;
    // A negative index is a large unsigned one.
    const int64_t extent = signed_ ? std::min(extent_, int64_t{1} << 31) : extent_;
    for (int64_t k = 0; k < n; ++k) use(k, int64_t{words[k]} < extent ? int64_t{words[k]} : -1);
  }

 private:
  int64_t count_ = 0;
  int64_t extent_ = 1;
  bool signed_ = false;
};

/// Returns the element that an index outside the axis yields: NaN for floating point unless `zero`
/// is set, otherwise zero.
inline std::array<std::byte, 8> element_outside(DType dtype, bool zero) {
  std::array<std::byte, 8> element{};
  if (!is_float(dtype) || zero) return element;
  const auto nan = HostTensor::of<double>({}, f64, {std::nan("")}).cast(dtype);
  std::memcpy(element.data(), nan.bytes().data(), nan.bytes().size());
  return element;
}

}  // namespace sluice::cpu
