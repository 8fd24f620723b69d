#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "sluice/planner/instance.h"

namespace sluice::planner {

/// The order of a pair of items that live at one time: 2 * pair if the first item of the pair is
/// below the second, 2 * pair + 1 if it is above.
using Literal = int32_t;
inline constexpr Literal kNoLiteral = -1;
inline Literal negated(Literal literal) { return literal ^ 1; }
inline int32_t pair_of(Literal literal) { return literal >> 1; }

/// Items that are alive at one time, such that no other item lives with all of them.
struct Clique {
  std::vector<int32_t> items;  ///< In descending order of size.
  int64_t slack = 0;           ///< Height less the sum of the sizes.
};

/// The items that die and those that are born between two cliques. An item that is in both cliques
/// has the same offset there. Its offset is the sum of the sizes below it and of the gaps below it,
/// and gaps are at most the slack. So the sizes of those below it that die, less the sizes of those
/// below it that are born, are at least -(slack before) and at most the slack after.
struct Exchange {
  struct Member {
    int32_t item;
    int64_t size;
    bool dies;  ///< It is in the first clique; otherwise in the second.
  };
  std::vector<Member> members;  ///< In descending order of size.
  int64_t slack_before = 0;
  int64_t slack_after = 0;
};

/// One item that lives through an exchange.
struct Survivor {
  int32_t item;
  int32_t exchange;
};

/// A pair of a survivor and a member of its exchange.
struct SurvivorPair {
  int32_t survivor;  ///< Index.
  int64_t size;      ///< Units of the member.
  bool dies;         ///< See Exchange::Member.
  bool is_first;     ///< The member, not the survivor, is the first item of the pair.
};

/// Facts that hold in all plans of a height before any order is chosen: the literals, cliques and
/// exchanges of an instance whose items have one range each.
class OrderGraph {
 public:
  /// Whether it takes the instance: memory is linear in the number of pairs, which is limited.
  static bool takes(const Instance& instance, const Conflicts& conflicts);

  OrderGraph(const Instance& instance, const Conflicts& conflicts, int64_t height);

  int32_t items() const { return count_; }
  int32_t pairs() const { return static_cast<int32_t>(low_.size()) / 2; }
  /// The literal of an item below another one; kNoLiteral for items that do not live at one time.
  Literal below(int32_t low, int32_t high) const {
    return literal_[static_cast<size_t>(low) * static_cast<size_t>(count_) +
                    static_cast<size_t>(high)];
  }
  int32_t low(Literal literal) const { return low_[literal]; }
  int32_t high(Literal literal) const { return low_[negated(literal)]; }

  const std::vector<Clique>& cliques() const { return cliques_; }
  /// The cliques of an item: indices first, …, last - 1.
  Sections cliques_of(int32_t item) const { return cliques_of_[item]; }
  /// The cliques that both items of a pair are in; never empty.
  Sections cliques_of_both(int32_t a, int32_t b) const;
  /// Numbers pairs of an item and one of its cliques; below `memberships()`.
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
  std::vector<int32_t> low_;      // Lower item of each literal.
  std::vector<Clique> cliques_;
  std::vector<Sections> cliques_of_;
  std::vector<size_t> membership_begin_;
  std::vector<Exchange> exchanges_;
  std::vector<Survivor> survivors_;
  std::vector<SurvivorPair> survivor_pairs_;
  std::vector<int32_t> survivor_pair_pairs_;  // The pair of each, until they are sorted by it.
  std::vector<size_t> survivor_pair_begin_;
};

}  // namespace sluice::planner
