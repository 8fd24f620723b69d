#pragma once
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sluice/base/dtype.h"
#include "sluice/base/ids/ids.h"

namespace sluice {

/// Dimensions in row-major order; empty for a scalar. Dimensions are >= 0.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) : dims_(dims) {}
  explicit Shape(std::vector<int64_t> dims) : dims_(std::move(dims)) {}

  int rank() const { return static_cast<int>(dims_.size()); }
  bool empty() const { return dims_.empty(); }
  int64_t operator[](int axis) const { return at(dims_, axis); }
  int64_t& operator[](int axis) { return at(dims_, axis); }
  /// Returns the dimension of `axis`; -1 is the last axis. Error{kUsage} if it is out of range.
  int64_t dim(int axis) const;
  const std::vector<int64_t>& dims() const { return dims_; }
  auto begin() const { return dims_.begin(); }
  auto end() const { return dims_.end(); }

  /// Number of elements (1 for a scalar); Error{kUsage} if it exceeds 63 bits.
  int64_t elements() const;
  /// Row-major strides, in elements.
  std::vector<int64_t> strides() const;

  bool operator==(const Shape&) const = default;

 private:
  std::vector<int64_t> dims_;
};

/// Formats a shape as a Python tuple: "()", "(5,)", "(2, 4)".
std::string to_string(const Shape& shape);

/// Returns `axis` counted from the front. Error{kUsage} naming `what` if `axis` is outside
/// [-rank, rank).
int normalize_axis(int64_t axis, int rank, std::string_view what);

/// Broadcasts two shapes by numpy's rules. Error{kUsage} naming `what` and both shapes if they do
/// not broadcast.
Shape broadcast(const Shape& a, const Shape& b, std::string_view what);

/// Describes a tensor: its local shape, its element type and, if it is a shard, the full shape.
struct TensorSpec {
  Shape shape = {};
  DType dtype = f32;
  Shape meta_shape = {};  ///< Full shape if the tensor is a shard; empty otherwise.

  int64_t elements() const { return shape.elements(); }
  /// Size in bytes, without padding; Error{kUsage} if it exceeds 63 bits.
  int64_t bytes() const;
  bool operator==(const TensorSpec&) const = default;
};

/// Specs without a meta_shape: f32_spec({2, 3}).
inline TensorSpec f32_spec(Shape shape) { return {std::move(shape), f32, {}}; }
inline TensorSpec i32_spec(Shape shape) { return {std::move(shape), i32, {}}; }

/// Formats a spec as in schedules: "(2, 4) float32".
std::string to_string(const TensorSpec& spec);

/// Throws Error{kUsage} if the dtype is f64 or i64, which only the host supports. `what` begins the
/// message, for example "stream 'x'".
void require_device_dtype(const TensorSpec& spec, std::string_view what);

}  // namespace sluice
