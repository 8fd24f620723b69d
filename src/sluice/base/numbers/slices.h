#pragma once
#include <cstdint>
#include <span>

namespace sluice {

/// A sequence as a number of slices of equal size, such as the rows of an array. It does not own
/// the elements.
template <typename T>
class Slices {
 public:
  /// `count` must divide the number of elements. Without slices, their size is 0.
  Slices(std::span<T> all, int64_t count)
      : data_(all.data()), size_(count == 0 ? 0 : std::ssize(all) / count) {}

  /// Returns the number of elements of a slice.
  int64_t size() const { return size_; }
  /// Returns a slice.
  std::span<T> operator[](int64_t slice) const { return range(slice, 1); }
  /// Returns `count` slices, one after the other, from slice `first` on.
  std::span<T> range(int64_t first, int64_t count) const {
    T* const begin = data_ + first * size_;
    return {begin, begin + count * size_};
  }

 private:
  T* data_;
  int64_t size_;
};

}  // namespace sluice
