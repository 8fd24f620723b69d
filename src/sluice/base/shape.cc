#include "sluice/base/shape.h"

#include <algorithm>

#include "sluice/base/checked.h"

namespace sluice {

int64_t Shape::dim(int axis) const { return (*this)[normalize_axis(axis, rank(), "dim")]; }

int64_t Shape::elements() const {
  int64_t n = 1;
  for (const int64_t d : dims_) n = checked_mul(n, d);
  return n;
}

std::vector<int64_t> Shape::strides() const {
  std::vector<int64_t> strides(dims_.size(), 1);
  for (size_t i = strides.size(); i-- > 1;) strides[i - 1] = strides[i] * dims_[i];
  return strides;
}

std::string to_string(const Shape& shape) {
  // Checks format their arguments even if they hold, so this text is built without fmt::format().
  std::string text = "(";
  for (int i = 0; i < shape.rank(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(shape[i]);
  }
  return text += shape.rank() == 1 ? ",)" : ")";
}

int normalize_axis(int64_t axis, int rank, std::string_view what) {
  require(axis >= -rank && axis < rank, "{}: axis {} is outside [{}, {})", what, axis, -rank, rank);
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

Shape broadcast(const Shape& a, const Shape& b, std::string_view what) {
  const int rank = std::max(a.rank(), b.rank());
  std::vector<int64_t> dims;
  for (int i = 0; i < rank; ++i) {
    const int64_t x = i < rank - a.rank() ? 1 : a[i - (rank - a.rank())];
    const int64_t y = i < rank - b.rank() ? 1 : b[i - (rank - b.rank())];
    require(x == y || x == 1 || y == 1, "{}: shapes {} and {} do not broadcast", what, to_string(a),
            to_string(b));
    dims.push_back(x == 1 ? y : x);
  }
  return Shape(std::move(dims));
}

int64_t TensorSpec::bytes() const { return checked_mul(shape.elements(), size_of(dtype)); }

std::string to_string(const TensorSpec& spec) {
  std::string text = to_string(spec.shape) += ' ';
  return text += name_of(spec.dtype);
}

void require_device_dtype(const TensorSpec& spec, std::string_view what) {
  require(spec.dtype != f64 && spec.dtype != i64,
          "{} must have a dtype that devices have, got {}; cast the array with HostTensor::cast",
          what, to_string(spec));
}

}  // namespace sluice
