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

/// True if `T` is how elements of `dtype` lie in host memory.
template <typename T>
bool holds(DType dtype) {
  return visit_storage(dtype, []<typename U>(U) { return std::is_same_v<T, U>; });
}

/// An array in host memory that owns its bytes: row-major, aligned to 64 bytes, copied by value.
class HostTensor {
 public:
  HostTensor() = default;
  /// Zeros.
  explicit HostTensor(TensorSpec spec);
  HostTensor(const HostTensor& other);
  HostTensor& operator=(const HostTensor& other);
  HostTensor(HostTensor&&) noexcept = default;
  HostTensor& operator=(HostTensor&&) noexcept = default;

  /// An array of `values`; as many as the shape has elements.
  template <typename T>
  static HostTensor of(Shape shape, DType dtype, const std::vector<T>& values) {
    HostTensor t(TensorSpec{std::move(shape), dtype, {}});
    auto out = t.as<T>();
    t.require_values(values.size());
    for (size_t i = 0; i < values.size(); ++i) out[i] = values[i];
    return t;
  }
  static HostTensor scalar(float value);

  const TensorSpec& spec() const { return spec_; }
  const Shape& shape() const { return spec_.shape; }
  DType dtype() const { return spec_.dtype; }
  int64_t elements() const { return spec_.elements(); }

  std::span<std::byte> bytes() { return {data_.get(), size_}; }
  std::span<const std::byte> bytes() const { return {data_.get(), size_}; }

  /// The elements; Error{kUsage} if T is not the storage type of the dtype (f16 and bf16: uint16_t).
  template <typename T>
  std::span<T> as() {
    require_type(holds<T>(dtype()));
    return {reinterpret_cast<T*>(data_.get()), static_cast<size_t>(elements())};
  }
  template <typename T>
  std::span<const T> as() const {
    return const_cast<HostTensor*>(this)->as<T>();
  }

  /// The elements as double, whatever the dtype.
  std::vector<double> to_doubles() const;
  /// This array in another dtype, rounded to nearest even; integers saturate, NaN becomes 0, bool is "not zero".
  HostTensor cast(DType dtype) const;
  /// The same bytes under another shape of as many elements.
  HostTensor reshaped(Shape shape) const;

  /// Same spec and same bytes.
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

/// An array and its name: of a variable, or of a tensor in a file.
struct NamedArray {
  std::string name;
  HostTensor array;
};

/// A view of somebody's array in host memory, row-major, without padding.
struct ConstArrayView {
  TensorSpec spec;
  const std::byte* data = nullptr;
  ConstArrayView() = default;
  ConstArrayView(TensorSpec s, const void* d)
      : spec(std::move(s)), data(static_cast<const std::byte*>(d)) {}
  ConstArrayView(const HostTensor& t)
      : spec(t.spec()), data(t.bytes().data()) {}  // NOLINT: implicit
};

/// A view of somebody's array that may be written.
struct ArrayView {
  TensorSpec spec;
  std::byte* data = nullptr;
  ArrayView() = default;
  ArrayView(TensorSpec s, void* d) : spec(std::move(s)), data(static_cast<std::byte*>(d)) {}
  ArrayView(HostTensor& t) : spec(t.spec()), data(t.bytes().data()) {}  // NOLINT: implicit
};

}  // namespace sluice
