#pragma once
#include <cstdint>
#include <vector>

namespace sluice {

/// The last ones of elements that are numbered from 0. Element k is in slot k mod size().
template <typename T>
class Ring {
 public:
  explicit Ring(int64_t slots = 0) : slots_(static_cast<size_t>(slots)) {}

  int64_t size() const { return std::ssize(slots_); }
  T& operator[](int64_t number) { return slots_.data()[number % size()]; }
  const T& operator[](int64_t number) const { return slots_.data()[number % size()]; }

  auto begin() { return slots_.begin(); }
  auto end() { return slots_.end(); }

 private:
  std::vector<T> slots_;
};

}  // namespace sluice
