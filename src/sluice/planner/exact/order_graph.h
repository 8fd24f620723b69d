#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "sluice/planner/instance.h"

namespace sluice::planner {

/// An order of two items that live at one time: 2 * pair if the first item of the pair is below the
/// second, 2 * pair + 1 if it is above.
using Literal = int32_t;
inline constexpr Literal kNoLiteral = -1;
inline Literal negated(Literal literal) { return literal ^ 1; }
inline int32_t pair_of(Literal literal) { return literal >> 1; }

/// A maximal set of items that are all alive at one time.
struct Clique {
  std::vector<int32_t> items;  ///< In descending order of size.
  int64_t slack = 0;           ///< Height minus the sum of the sizes.
};

/// The items that die and the items that are born between two cliques. An item of both cliques (a
/// survivor) keeps its offset, which is the sum of the sizes and gaps below it. In each clique, the
/// gaps sum to at most the slack. Therefore the sizes of dying items below it, minus the sizes of
/// born items below it, are at least -slack_before and at most slack_after.
struct Exchange {
  struct Member {
    int32_t item;
    int64_t size;
    bool dies;  ///< True: it is in the first clique only. False: in the second only.
  };
  std::vector<Member> members;  ///< In descending order of size.
  int64_t slack_before = 0;
  int64_t slack_after = 0;
};

/// An item in both cliques of an exchange.
struct Survivor {
  int32_t item;
  int32_t exchange;
};

/// A pair of a survivor and a member of its exchange.
struct SurvivorPair {
  int32_t survivor;  ///< Index in survivors().
  int64_t size;      ///< Size of the member in units.
  bool dies;         ///< See Exchange::Member.
  bool is_first;     ///< Whether the first item of the pair is the member.
};

/// Literals, cliques and exchanges of an instance whose items have one range each. These facts hold
/// in every plan of a height, before any order is chosen.
class OrderGraph {
 public:
  /// Returns whether an OrderGraph of the instance can be made: each item has one range, and memory
  /// stays small (at most 3000 items and 400,000 pairs).
  static bool takes(const Instance& instance, const Conflicts& conflicts);

  OrderGraph(const Instance& instance, const Conflicts& conflicts, int64_t height);

  int32_t items() const { return count_; }
  int32_t pairs() const { return static_cast<int32_t>(low_.size()) / 2; }
  /// The literal for `low` below `high`; kNoLiteral if the items never live at one time.
  Literal below(int32_t low, int32_t high) const {
    return literal_[static_cast<size_t>(low) * static_cast<size_t>(count_) +
                    static_cast<size_t>(high)];
  }
  int32_t low(Literal literal) const { return low_[literal]; }
  int32_t high(Literal literal) const { return low_[negated(literal)]; }

  const std::vector<Clique>& cliques() const { return cliques_; }
  /// Indices of the item's cliques: first, …, last - 1.
  Sections cliques_of(int32_t item) const { return cliques_of_[item]; }
  /// Indices of the cliques that contain both items of a pair; never empty.
  Sections cliques_of_both(int32_t a, int32_t b) const;
  /// Numbers each pair of an item and one of its cliques, from 0 to memberships() - 1.
  size_t membership(int32_t item, int32_t clique) const {
    return membership_begin_[item] + static_cast<size_t>(clique - cliques_of_[item].first);
  }
  size_t memberships() const { return membership_begin_.back(); }

  const std::vector<Exchange>& exchanges() const { return exchanges_; }
  const std::vector<Survivor>& survivors() const { return survivors_; }
  std::span<const SurvivorPair> survivor_pairs(int32_t pair) const {
    return {survivor_pairs_.data() + survivor_pair_begin_[pair],
            survivor_pairs_.data() + survivor_pair_begin_[pair + 1]};
  }

 private:
  void make_pairs(const Conflicts& conflicts);
  void make_cliques(const Instance& instance, int64_t height);
  void make_exchanges(const Instance& instance);
  bool make_exchange(const Instance& instance, int32_t before, int32_t after);
  void sort_survivor_pairs();

  int32_t count_;
  std::vector<Literal> literal_;  // [low * count + high]
  std::vector<int32_t> low_;      // Lower item, by literal.
  std::vector<Clique> cliques_;
  std::vector<Sections> cliques_of_;
  std::vector<size_t> membership_begin_;
  std::vector<Exchange> exchanges_;
  std::vector<Survivor> survivors_;
  std::vector<SurvivorPair> survivor_pairs_;
  std::vector<int32_t> survivor_pair_pairs_;  // Sort key of survivor_pairs_; cleared after sorting.
  std::vector<size_t> survivor_pair_begin_;
};

}  // namespace sluice::planner
