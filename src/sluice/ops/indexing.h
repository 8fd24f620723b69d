#pragma once
#include <span>
#include <string_view>
#include <vector>

#include "sluice/base/shape.h"
#include "sluice/ir/op_def.h"

namespace sluice::ops {

/// For reference kernels: maps a row-major index over `dims` to an offset in an array, in elements.
/// The array moves `strides[i]` elements along dimension i. Strides may be 0 or negative.
class StridedIndex {
 public:
  StridedIndex(std::vector<int64_t> dims, std::vector<int64_t> strides, int64_t base = 0)
      : dims_(std::move(dims)), strides_(std::move(strides)), base_(base) {}

  int64_t operator()(int64_t flat) const {
    int64_t offset = base_;
    for (size_t i = dims_.size(); i-- > 0;) {
      offset += flat % dims_[i] * strides_[i];
      flat /= dims_[i];
    }
    return offset;
  }

 private:
  std::vector<int64_t> dims_;
  std::vector<int64_t> strides_;
  int64_t base_;
};

/// Number of axes that an axis option may name. A scalar has one, of size 1, as in numpy.
inline int axes_of(const Shape& shape) { return shape.empty() ? 1 : shape.rank(); }

/// Returns an axis option of an op, counted from the front. Error{kUsage} citing `constraint`, such
/// as "(C2)", unless it is one of the axes_of(shape).
inline int axis_option(const OpView& op, int64_t axis, const Shape& shape,
                       std::string_view constraint) {
  const int rank = axes_of(shape);
  require(axis >= -rank && axis < rank, "{} {}: axis must be in [{}, {}) for shape {}, got {}",
          op.def().name, constraint, -rank, rank, to_string(shape), axis);
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

/// A shape split at one axis into outer, extent and inner. Element (o, i, n) is at offset (o·extent
/// + i)·inner + n.
struct AxisSplit {
  int64_t outer = 1;
  int64_t extent = 1;
  int64_t inner = 1;

  /// `axis` must be in [0, axes_of(shape)).
  AxisSplit(const Shape& shape, int axis) : extent(shape.empty() ? 1 : shape[axis]) {
    for (int a = 0; a < axis; ++a) outer *= shape[a];
    for (int a = axis + 1; a < shape.rank(); ++a) inner *= shape[a];
  }
  int64_t lanes() const { return outer * inner; }
  /// Offset of the first element of lane `lane`. Successive elements of a lane are `inner` apart.
  int64_t lane(int64_t lane) const { return lane / inner * extent * inner + lane % inner; }
};

/// Replaces `axis` of `shape` by the dimensions of `by`: the shape of the slices that indices of
/// shape `by` select along the axis.
inline Shape replace_axis(const Shape& shape, int axis, const Shape& by) {
  std::vector<int64_t> dims(shape.begin(), shape.begin() + axis);
  dims.insert(dims.end(), by.begin(), by.end());
  dims.insert(dims.end(), shape.begin() + axis + 1, shape.end());
  return Shape(std::move(dims));
}

/// For reference kernels: returns an int32 or uint32 operand as int64.
inline std::vector<int64_t> indices_of(const KernelArgs& k, int input) {
  std::vector<int64_t> all;
  visit_element<float>(k.in_dtype(input), [&]<typename E>(E) {
    for (const E index : k.in<E>(input)) all.push_back(static_cast<int64_t>(index));
  });
  return all;
}

}  // namespace sluice::ops
