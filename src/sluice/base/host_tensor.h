#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "sluice/base/error.h"
#include "sluice/base/shape.h"

namespace sluice {

/// Whether `T` is the type that stores elements of `dtype` in host memory.
template <typename T>
bool holds(DType dtype) {
  return visit_storage(dtype, []<typename U>(U) { return std::is_same_v<T, U>; });
}

/// An array in host memory that owns its bytes: row-major, aligned to 64 bytes, copied by value.
class HostTensor {
 public:
  HostTensor() = default;
  /// Creates zeros. Error{kUsage} for a negative dimension, Error{kDoesNotFit} without the memory.
  explicit HostTensor(TensorSpec spec);
  HostTensor(const HostTensor& other);
  HostTensor& operator=(const HostTensor& other);
  HostTensor(HostTensor&&) noexcept = default;
  HostTensor& operator=(HostTensor&&) noexcept = default;

  /// Creates an array from `values` in row-major order. Error{kUsage} if T does not store `dtype`,
  /// or if the number of values is not the number of elements.
  template <typename T>
  static HostTensor of(Shape shape, DType dtype, const std::vector<T>& values) {
    HostTensor t(TensorSpec{std::move(shape), dtype, {}});
    auto out = t.as<T>();
    t.require_values(values.size());
    for (size_t i = 0; i < values.size(); ++i) out[i] = values[i];
    return t;
  }
  /// Joins arrays of one spec along a new first axis. Error{kUsage} if there is none, or if specs
  /// differ.
  static HostTensor stack(const std::vector<HostTensor>& arrays);
  static HostTensor scalar(float value);

  const TensorSpec& spec() const { return spec_; }
  const Shape& shape() const { return spec_.shape; }
  DType dtype() const { return spec_.dtype; }
  int64_t elements() const { return spec_.elements(); }

  std::span<std::byte> bytes() { return {data_.get(), size_}; }
  std::span<const std::byte> bytes() const { return {data_.get(), size_}; }

  /// Returns the elements. Error{kUsage} if T does not store the dtype (f16 and bf16: uint16_t).
  template <typename T>
  std::span<T> as() {
    require_type(holds<T>(dtype()));
    T* const data = reinterpret_cast<T*>(data_.get());
    return {data, data + elements()};
  }
  template <typename T>
  std::span<const T> as() const {
    return const_cast<HostTensor*>(this)->as<T>();
  }

  /// Converts the elements to double.
  std::vector<double> to_doubles() const;
  /// Converts the array to another dtype. Floating-point types round to nearest even. Integer types
  /// truncate toward zero and saturate; NaN becomes 0. bool is true for nonzero values.
  HostTensor cast(DType dtype) const;
  /// Copies the array with another shape. Error{kUsage} if the number of elements differs.
  HostTensor reshaped(Shape shape) const;

  /// Whether both arrays have the same spec and the same bytes.
  bool same_bits(const HostTensor& other) const;

 private:
  /// Requires that the array has `count` elements.
  void require_values(size_t count) const;
  /// Requires that `same`: the element type asked for is that of the array.
  void require_type(bool same) const;

  struct Free {
    void operator()(std::byte* p) const;
  };
  TensorSpec spec_{Shape{0}, f32, {}};
  size_t size_ = 0;
  std::unique_ptr<std::byte[], Free> data_;
};

/// An array with the name of its variable, or of its tensor in a file.
struct NamedArray {
  std::string name = {};
  HostTensor array = {};
};

/// A read-only view of a row-major array in host memory, without padding. It does not own the
/// bytes.
struct ConstArrayView {
  TensorSpec spec;
  const std::byte* data = nullptr;
  ConstArrayView() = default;
  ConstArrayView(TensorSpec s, const void* d)
      : spec(std::move(s)), data(static_cast<const std::byte*>(d)) {}
  ConstArrayView(const HostTensor& t)
      : spec(t.spec()), data(t.bytes().data()) {}  // NOLINT: implicit
};

/// A writable view of a row-major array in host memory, without padding. It does not own the bytes.
struct ArrayView {
  TensorSpec spec;
  std::byte* data = nullptr;
  ArrayView() = default;
  ArrayView(TensorSpec s, void* d) : spec(std::move(s)), data(static_cast<std::byte*>(d)) {}
  ArrayView(HostTensor& t) : spec(t.spec()), data(t.bytes().data()) {}  // NOLINT: implicit
};

}  // namespace sluice
