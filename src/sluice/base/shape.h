#pragma once
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/base/dtype.h"

namespace sluice {

/// Dimensions in row-major order; empty for a scalar. Dimensions are >= 0.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) : dims_(dims) {}
  explicit Shape(std::vector<int64_t> dims) : dims_(std::move(dims)) {}

  int rank() const { return static_cast<int>(dims_.size()); }
  bool empty() const { return dims_.empty(); }
  int64_t operator[](int axis) const { return dims_[static_cast<size_t>(axis)]; }
  int64_t& operator[](int axis) { return dims_[static_cast<size_t>(axis)]; }
  /// Dimension of an axis that may count from the end; Error{kUsage} out of range.
  int64_t dim(int axis) const;
  const std::vector<int64_t>& dims() const { return dims_; }
  auto begin() const { return dims_.begin(); }
  auto end() const { return dims_.end(); }

  /// Number of elements (1 for a scalar); Error{kUsage} beyond 63 bits.
  int64_t elements() const;
  /// Row-major strides, in elements.
  std::vector<int64_t> strides() const;

  bool operator==(const Shape&) const = default;

 private:
  std::vector<int64_t> dims_;
};

/// The text of a Python tuple: "()", "(5,)", "(2, 4)".
std::string to_string(const Shape& shape);

/// `axis` counted from the front; Error{kUsage} naming `what` if it is outside [-rank, rank).
int normalize_axis(int64_t axis, int rank, std::string_view what);

/// numpy's broadcast of two shapes; Error{kUsage} naming `what` and both shapes if there is none.
Shape broadcast(const Shape& a, const Shape& b, std::string_view what);

/// What a tensor is: local shape, element type, and, if it is a shard, the full shape.
struct TensorSpec {
  Shape shape = {};
  DType dtype = f32;
  Shape meta_shape = {};  ///< Empty unless the tensor is a shard of a tensor of this shape.

  int64_t elements() const { return shape.elements(); }
  /// Bytes in row-major order without padding.
  int64_t bytes() const;
  bool operator==(const TensorSpec&) const = default;
};

/// "(2, 4) float32", as schedules print it.
std::string to_string(const TensorSpec& spec);

/// Error{kUsage} for f64 and i64, which only the host has. `what` begins the message: "stream 'x'".
void require_device_dtype(const TensorSpec& spec, std::string_view what);

}  // namespace sluice
