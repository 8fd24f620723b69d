#pragma once
#include <concepts>
#include <cstddef>
#include <initializer_list>
#include <iterator>
#include <type_traits>
#include <utility>
#include <vector>

#include "sluice/base/ids/id.h"

/// Tables that are indexed by ids.
namespace sluice {

/// The ids from `first` up to, not including, `last`, for range-based loops.
template <typename I>
class IdRange {
 public:
  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = I;
    using difference_type = std::ptrdiff_t;
    using pointer = const I*;
    using reference = I;

    constexpr explicit Iterator(I id) : id_(id) {}
    constexpr I operator*() const { return id_; }
    constexpr Iterator& operator++() {
      ++id_;
      return *this;
    }
    constexpr Iterator operator++(int) {
      const Iterator before = *this;
      ++id_;
      return before;
    }
    constexpr bool operator==(const Iterator&) const = default;

   private:
    I id_;
  };

  constexpr IdRange(I first, I last) : first_(first), last_(last < first ? first : last) {}
  constexpr Iterator begin() const { return Iterator(first_); }
  constexpr Iterator end() const { return Iterator(last_); }

 private:
  I first_;
  I last_;
};

/// A vector that is indexed by ids of type `I` alone.
template <typename I, typename T>
class Ids {
 public:
  using value_type = T;
  using reference = typename std::vector<T>::reference;
  using const_reference = typename std::vector<T>::const_reference;

  Ids() = default;
  Ids(std::initializer_list<T> items) : items_(items) {}
  explicit Ids(std::vector<T> items) : items_(std::move(items)) {}
  explicit Ids(size_t size) : items_(size) {}
  Ids(size_t size, const T& item) : items_(size, item) {}

  /// The element of a valid id that is less than end_id().
  reference operator[](I id) { return items_[static_cast<size_t>(id.value())]; }
  const_reference operator[](I id) const { return items_[static_cast<size_t>(id.value())]; }
  /// Whether the table has an element of this id.
  bool contains(I id) const { return id.valid() && static_cast<size_t>(id.value()) < size(); }
  /// The id of an element of this table.
  I id_of(const T& item) const { return I(&item - items_.data()); }

  /// Appends an element and returns its id.
  I push_back(T item) {
    items_.push_back(std::move(item));
    return I(size() - 1);
  }
  template <typename... Args>
  reference emplace_back(Args&&... args) {
    return items_.emplace_back(std::forward<Args>(args)...);
  }
  void pop_back() { items_.pop_back(); }
  void resize(size_t size) { items_.resize(size); }
  void resize(size_t size, const T& item) { items_.resize(size, item); }
  void assign(size_t size, const T& item) { items_.assign(size, item); }
  void reserve(size_t size) { items_.reserve(size); }
  void clear() { items_.clear(); }

  size_t size() const { return items_.size(); }
  bool empty() const { return items_.empty(); }
  /// The id of the element that push_back() would append next.
  I end_id() const { return I(size()); }
  /// The ids of all elements, ascending.
  IdRange<I> ids() const { return {I(0), end_id()}; }

  auto begin() { return items_.begin(); }
  auto end() { return items_.end(); }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }
  reference front() { return items_.front(); }
  const_reference front() const { return items_.front(); }
  reference back() { return items_.back(); }
  const_reference back() const { return items_.back(); }
  /// The elements as a plain vector, for example to insert or erase a range.
  std::vector<T>& items() { return items_; }
  const std::vector<T>& items() const { return items_; }

  bool operator==(const Ids&) const = default;

 private:
  std::vector<T> items_;
};

/// Element `index` of a plain sequence whose positions are signed numbers, such as axes, or the
/// enumerators of an enum.
template <typename Sequence, typename Index>
requires(std::integral<Index> || std::is_enum_v<Index>) constexpr decltype(auto)
    at(Sequence&& sequence, Index index) {
  return std::forward<Sequence>(sequence)[static_cast<size_t>(index)];
}

}  // namespace sluice
