#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "sluice/planner/exact/order_graph.h"

namespace sluice::planner {

/// Learned clauses: every plan makes at least one literal of each clause true. Only the first two
/// literals of a clause are watched. The search puts the literals that become false last at these
/// two positions.
class Clauses {
 public:
  struct Watch {
    int32_t clause;
    Literal other;  ///< Another literal of the clause; while it is true, skip the clause.
  };

  explicit Clauses(int32_t literals) : watches_(static_cast<size_t>(literals)) {}

  /// Adds a clause of two or more literals and returns its number. `glue` is the number of
  /// different levels of its literals; clauses with low glue are the most useful.
  int32_t add(std::span<const Literal> literals, int32_t glue);

  std::span<Literal> of(int32_t clause) {
    const Header& header = headers_[clause];
    return {literals_.data() + header.begin, static_cast<size_t>(header.size)};
  }
  std::span<const Literal> of(int32_t clause) const {
    const Header& header = headers_[clause];
    return {literals_.data() + header.begin, static_cast<size_t>(header.size)};
  }
  /// The clauses to visit when `literal` becomes false.
  std::vector<Watch>& watches(Literal literal) { return watches_[literal]; }

  size_t count() const { return learned_.size(); }
  size_t literals() const { return literals_.size(); }

  /// Discards the worse half of the clauses: those with more glue, or longer ones of equal glue.
  /// Keeps clauses of at most two levels and clauses for which `in_use(clause)` is true. A kept
  /// clause keeps its number.
  template <typename InUse>
  void discard_half(InUse&& in_use);

 private:
  struct Header {
    size_t begin;
    int32_t size;  // 0 once the clause is discarded.
    int32_t glue;
  };

  void sort_by_worth();
  void compact();

  std::vector<Header> headers_;
  std::vector<int32_t> free_;     // Numbers of discarded clauses, for reuse.
  std::vector<int32_t> learned_;  // Numbers of the clauses in use.
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
