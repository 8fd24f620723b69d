#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "sluice/planner/exact/order_graph.h"

namespace sluice::planner {

/// Clauses that were learned: of each, one literal is true in every plan. Each is watched at its
/// first two literals, which are the last to become false.
class Clauses {
 public:
  struct Watch {
    int32_t clause;
    Literal other;  ///< A literal of the clause: if it is true, the clause needs no look.
  };

  explicit Clauses(int32_t literals) : watches_(static_cast<size_t>(literals)) {}

  /// Adds a clause of two or more literals. `glue`: levels that its literals were chosen at.
  int32_t add(std::span<const Literal> literals, int32_t glue);

  std::span<Literal> of(int32_t clause) {
    const Header& header = headers_[clause];
    return {literals_.data() + header.begin, static_cast<size_t>(header.size)};
  }
  std::span<const Literal> of(int32_t clause) const {
    const Header& header = headers_[clause];
    return {literals_.data() + header.begin, static_cast<size_t>(header.size)};
  }
  /// Watches of the clauses to look at when `literal` becomes false.
  std::vector<Watch>& watches(Literal literal) { return watches_[literal]; }

  size_t count() const { return learned_.size(); }
  size_t literals() const { return literals_.size(); }

  /// Discards the worse half: clauses of more glue, or longer ones. Those for which
  /// `in_use(clause)` and those of two levels stay. The numbers of the others do not change.
  template <typename InUse>
  void discard_half(InUse&& in_use);

 private:
  struct Header {
    size_t begin;
    int32_t size;  // 0: discarded.
    int32_t glue;
  };

  void sort_by_worth();
  void compact();

  std::vector<Header> headers_;
  std::vector<int32_t> free_;     // Numbers of clauses that were discarded.
  std::vector<int32_t> learned_;  // Numbers of the others.
  std::vector<Literal> literals_;
  std::vector<std::vector<Watch>> watches_;
};

template <typename InUse>
void Clauses::discard_half(InUse&& in_use) {
  sort_by_worth();
  size_t kept = learned_.size() / 2;
  for (size_t k = kept; k < learned_.size(); ++k) {
    const int32_t clause = learned_[k];
    if (headers_[clause].glue <= 2 || in_use(clause)) {
      learned_[kept++] = clause;
    } else {
      headers_[clause].size = 0;
      free_.push_back(clause);
    }
  }
  learned_.resize(kept);
  compact();
}

}  // namespace sluice::planner
