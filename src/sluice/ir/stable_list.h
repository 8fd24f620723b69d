#pragma once
#include <compare>
#include <concepts>
#include <cstddef>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "sluice/base/ids/ids.h"

namespace sluice {

/// A list whose elements never move: a reference to an element is valid until the element is
/// removed, also if elements are added or reordered. An iterator is a position; it stays valid too,
/// so a loop may add elements. The list is indexed by ids of type `I` or by plain positions.
template <typename T, typename I = Id<T>>
class StableList {
 public:
  class Iterator {
   public:
    using iterator_category = std::random_access_iterator_tag;
    using value_type = T;
    using difference_type = std::ptrdiff_t;
    using pointer = const T*;
    using reference = const T&;

    Iterator() = default;
    Iterator(const StableList* list, difference_type at) : list_(list), at_(at) {}
    reference operator*() const { return (*list_)[at_]; }
    pointer operator->() const { return &**this; }
    reference operator[](difference_type n) const { return *(*this + n); }
    Iterator& operator++() { return *this += 1; }
    Iterator& operator--() { return *this += -1; }
    Iterator operator++(int) { return std::exchange(*this, *this + 1); }
    Iterator operator--(int) { return std::exchange(*this, *this - 1); }
    Iterator& operator+=(difference_type n) {
      at_ += n;
      return *this;
    }
    Iterator& operator-=(difference_type n) { return *this += -n; }
    friend Iterator operator+(Iterator i, difference_type n) { return i += n; }
    friend Iterator operator+(difference_type n, Iterator i) { return i += n; }
    friend Iterator operator-(Iterator i, difference_type n) { return i -= n; }
    friend difference_type operator-(const Iterator& a, const Iterator& b) { return a.at_ - b.at_; }
    bool operator==(const Iterator& other) const { return at_ == other.at_; }
    auto operator<=>(const Iterator& other) const { return at_ <=> other.at_; }

   private:
    const StableList* list_ = nullptr;
    difference_type at_ = 0;
  };
  using value_type = T;
  using iterator = Iterator;
  using const_iterator = Iterator;

  size_t size() const { return nodes_.size(); }
  bool empty() const { return nodes_.empty(); }
  const T& operator[](I id) const { return *nodes_[id]; }
  T& operator[](I id) { return *nodes_[id]; }
  template <std::integral Position>
  const T& operator[](Position position) const {
    return *nodes_[I(position)];
  }
  const T& front() const { return *nodes_.front(); }
  const T& back() const { return *nodes_.back(); }
  T& back() { return *nodes_.back(); }
  /// The id of the element that push_back() would append next, and the ids of all elements.
  I end_id() const { return nodes_.end_id(); }
  IdRange<I> ids() const { return nodes_.ids(); }
  Iterator begin() const { return {this, 0}; }
  Iterator end() const { return {this, static_cast<std::ptrdiff_t>(size())}; }

  void push_back(T value) { nodes_.push_back(std::make_unique<T>(std::move(value))); }
  /// Removes elements from index `count` on.
  void truncate(size_t count) {
    if (count < size()) nodes_.resize(count);
  }
  /// Removes the elements for which `remove(element)` is true.
  template <typename F>
  void erase_if(F&& remove) {
    std::erase_if(nodes_.items(), [&](const std::unique_ptr<T>& node) { return remove(*node); });
  }
  /// Makes the elements with ids `order` the elements of the list, in this order; removes the
  /// others. An id must not occur twice.
  void select(const std::vector<I>& order) {
    Ids<I, std::unique_ptr<T>> nodes;
    nodes.reserve(order.size());
    for (const I id : order) nodes.push_back(std::move(nodes_[id]));
    nodes_ = std::move(nodes);
  }

 private:
  Ids<I, std::unique_ptr<T>> nodes_;
};

}  // namespace sluice
