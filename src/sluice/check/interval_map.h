#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace sluice::check {

/// Map from disjoint ranges of addresses to values. An address outside all ranges has no value.
template <typename T>
class IntervalMap {
 public:
  struct Piece {
    int64_t begin;
    int64_t end;
    T value;
    bool operator==(const Piece&) const = default;
  };

  bool empty() const { return pieces_.empty(); }
  void clear() { pieces_.clear(); }

  void erase(int64_t begin, int64_t end) {
    if (begin >= end) return;
    split(begin);
    split(end);
    pieces_.erase(pieces_.lower_bound(begin), pieces_.lower_bound(end));
  }

  void assign(int64_t begin, int64_t end, T value) {
    if (begin >= end) return;
    erase(begin, end);
    pieces_.emplace_hint(pieces_.lower_bound(begin), begin, Tail{end, std::move(value)});
  }

  /// Calls f(begin, end, value) for each piece that intersects the range, clipped to the range.
  /// Stops when f returns false. Returns whether all calls returned true.
  template <typename F>
  bool visit(int64_t begin, int64_t end, F&& f) const {
    if (begin >= end) return true;
    for (auto i = first(begin); i != pieces_.end() && i->first < end; ++i) {
      if (!f(std::max(i->first, begin), std::min(i->second.end, end), i->second.value))
        return false;
    }
    return true;
  }

  /// Returns the pieces that intersect the range, clipped to the range.
  std::vector<Piece> pieces(int64_t begin, int64_t end) const {
    std::vector<Piece> out;
    visit(begin, end, [&](int64_t b, int64_t e, const T& v) {
      out.push_back({b, e, v});
      return true;
    });
    return out;
  }

  /// Fills the gaps of the range with pieces of T(). Then calls f(T&) for every piece of the range.
  template <typename F>
  void change(int64_t begin, int64_t end, F&& f) {
    if (begin >= end) return;
    split(begin);
    split(end);
    int64_t at = begin;
    for (auto i = pieces_.lower_bound(begin); at < end;) {
      if (i == pieces_.end() || i->first > at) {
        const int64_t stop = i == pieces_.end() ? end : std::min(i->first, end);
        i = pieces_.emplace_hint(i, at, Tail{stop, T()});
      }
      f(i->second.value);
      at = i->second.end;
      ++i;
    }
  }

  template <typename F>
  void for_each(F&& f) const {
    for (const auto& [begin, tail] : pieces_) f(begin, tail.end, tail.value);
  }

 private:
  struct Tail {
    int64_t end;
    T value;
  };

  auto first(int64_t begin) const {
    auto i = pieces_.upper_bound(begin);
    if (i != pieces_.begin() && std::prev(i)->second.end > begin) --i;
    return i;
  }

  void split(int64_t at) {
    auto i = pieces_.lower_bound(at);
    if (i == pieces_.begin()) return;
    --i;
    if (i->second.end <= at) return;
    Tail right{i->second.end, i->second.value};
    i->second.end = at;
    pieces_.emplace_hint(std::next(i), at, std::move(right));
  }

  std::map<int64_t, Tail> pieces_;
};

}  // namespace sluice::check
