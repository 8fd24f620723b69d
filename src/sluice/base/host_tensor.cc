#include "sluice/base/host_tensor.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <new>
#include <utility>

#include "sluice/base/checked.h"

namespace sluice {
namespace {

constexpr std::align_val_t kAlignment{64};
constexpr int64_t kMaxBytes = int64_t{1} << 47;  // The address space of a process.

// Returns the bytes of an array. Error{kUsage} for a negative dimension.
size_t checked_size(const TensorSpec& spec) {
  for (const int64_t d : spec.shape)
    require(d >= 0, "array: dimensions must be at least 0, got shape {}", to_string(spec.shape));
  return static_cast<size_t>(spec.bytes());
}

std::byte* allocate(const TensorSpec& spec, size_t size) {
  void* data = nullptr;
  if (size <= kMaxBytes)
    data = ::operator new[](std::max<size_t>(size, 1), kAlignment, std::nothrow);
  if (data == nullptr) {
    fail(ErrorKind::kDoesNotFit,
         "array: {} needs {} bytes, which the system refuses; use smaller arrays", to_string(spec),
         size);
  }
  return static_cast<std::byte*>(data);
}

double load(DType dtype, const std::byte* p) {
  return visit_storage(dtype, [&]<typename T>(T) -> double {
    T value;
    std::memcpy(&value, p, sizeof(T));
    if (dtype == f16) return half_to_float(static_cast<uint16_t>(value));
    if (dtype == bf16) return bfloat_to_float(static_cast<uint16_t>(value));
    return static_cast<double>(value);
  });
}

template <typename T>
T saturate(double value) {
  if (std::isnan(value)) return 0;
  constexpr double lowest = static_cast<double>(std::numeric_limits<T>::lowest());
  constexpr double highest = static_cast<double>(std::numeric_limits<T>::max());
  if (value <= lowest) return std::numeric_limits<T>::lowest();
  if (value >= highest) return std::numeric_limits<T>::max();
  return static_cast<T>(value);
}

void store(DType dtype, std::byte* p, double value) {
  visit_storage(dtype, [&]<typename T>(T) {
    T out;
    if (dtype == f16) {
      out = static_cast<T>(float_to_half(static_cast<float>(value)));
    } else if (dtype == bf16) {
      out = static_cast<T>(float_to_bfloat(static_cast<float>(value)));
    } else if constexpr (std::is_same_v<T, bool>) {
      out = value != 0;
    } else if constexpr (std::is_integral_v<T>) {
      out = saturate<T>(value);
    } else {
      out = static_cast<T>(value);
    }
    std::memcpy(p, &out, sizeof(T));
  });
}

}  // namespace

void HostTensor::Free::operator()(std::byte* p) const { ::operator delete[](p, kAlignment); }

HostTensor::HostTensor(TensorSpec spec)
    : spec_(std::move(spec)), size_(checked_size(spec_)), data_(allocate(spec_, size_)) {
  std::memset(data_.get(), 0, size_);
}

HostTensor::HostTensor(const HostTensor& other) : HostTensor(other.spec_) {
  if (size_ != 0) std::memcpy(data_.get(), other.data_.get(), size_);
}

HostTensor& HostTensor::operator=(const HostTensor& other) {
  if (this != &other) *this = HostTensor(other);
  return *this;
}

std::vector<double> HostTensor::to_doubles() const {
  const int64_t step = size_of(dtype());
  std::vector<double> values(static_cast<size_t>(elements()));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = load(dtype(), data_.get() + static_cast<int64_t>(i) * step);
  }
  return values;
}

HostTensor HostTensor::cast(DType dtype) const {
  if (dtype == this->dtype()) return *this;
  HostTensor out(TensorSpec{shape(), dtype, spec_.meta_shape});
  const std::vector<double> values = to_doubles();
  for (size_t i = 0; i < values.size(); ++i) {
    store(dtype, out.data_.get() + static_cast<int64_t>(i) * size_of(dtype), values[i]);
  }
  return out;
}

HostTensor HostTensor::stack(const std::vector<HostTensor>& arrays) {
  require(!arrays.empty(), "stack: requires at least one array, got none");
  const TensorSpec& each = arrays[0].spec();
  std::vector<int64_t> dims{static_cast<int64_t>(arrays.size())};
  dims.insert(dims.end(), each.shape.begin(), each.shape.end());
  HostTensor all(TensorSpec{Shape(std::move(dims)), each.dtype});
  auto to = all.bytes().begin();
  for (const HostTensor& array : arrays) {
    require(array.spec() == each, "stack: all arrays must be {} like the first, got {}",
            to_string(each), to_string(array.spec()));
    to = std::copy(array.bytes().begin(), array.bytes().end(), to);
  }
  return all;
}

HostTensor HostTensor::reshaped(Shape shape) const {
  require(shape.elements() == elements(), "array {}: the new shape must have {} elements, got {}",
          to_string(this->shape()), elements(), to_string(shape));
  HostTensor out = *this;
  out.spec_.shape = std::move(shape);
  return out;
}

bool HostTensor::same_bits(const HostTensor& other) const {
  return spec_ == other.spec_ &&
         (size_ == 0 || std::memcmp(data_.get(), other.data_.get(), size_) == 0);
}

HostTensor HostTensor::scalar(float value) { return of<float>({}, f32, {value}); }

void HostTensor::require_values(size_t count) const {
  require(std::cmp_equal(elements(), count), "array {} needs {} values, got {}", to_string(shape()),
          elements(), count);
}

void HostTensor::require_type(bool same) const {
  require(same, "array is {}: must be read as the C++ type that stores this dtype",
          name_of(dtype()));
}

}  // namespace sluice
