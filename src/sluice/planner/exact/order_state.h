#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "sluice/planner/exact/clauses.h"
#include "sluice/planner/exact/order_graph.h"

namespace sluice::planner {

/// The chosen orders, and all orders that follow from them. A choice opens a level. Cancelling a
/// level undoes its choice and the orders that followed from it.
///
/// For each item it stores the rooms: the units that other items need between it and the bottom
/// (side 0) or the top (side 1). If all orders are chosen without a conflict, the rooms below are
/// the offsets of a plan.
class OrderState {
 public:
  OrderState(const Instance& instance, const Conflicts& conflicts, const OrderGraph& graph,
             Clauses& clauses, int64_t height);

  /// 1: true, -1: false, 0: open.
  int value(Literal literal) const { return values_[literal]; }
  int32_t level() const { return static_cast<int32_t>(marks_.size()); }
  /// The level at which the order of a pair was chosen or derived. An order of level 0 holds in
  /// every plan.
  int32_t level_of(int32_t pair) const { return facts_[pair].level; }
  /// All true literals, in the order in which they became true.
  const std::vector<Literal>& trail() const { return trail_; }
  /// The length of the trail before the choice of the last level; at level 0, of the whole trail.
  size_t trail_before_choice() const {
    return marks_.empty() ? trail_.size() : marks_.back().trail;
  }
  int64_t room_below(int32_t item) const { return rooms_[0][item]; }
  int64_t room_above(int32_t item) const { return rooms_[1][item]; }

  /// Opens a level and makes an open literal true.
  void choose(Literal literal);
  /// Makes an open literal true because all other literals of the clause are false. With kNoClause,
  /// the literal holds in every plan (at level 0).
  void imply(Literal literal, int32_t clause);
  static constexpr int32_t kNoClause = -1;
  /// Undoes all levels above `level`.
  void cancel(int32_t level);

  /// Derives all literals that follow from the true ones. Returns false at a conflict.
  bool propagate();
  /// After propagate() returned false: true literals that no plan has together.
  const std::vector<Literal>& conflict() const { return conflict_; }
  /// Stores in `literals` older true literals from which `literal` follows. `literal` must not be a
  /// choice, and its level must be above 0.
  void explain(Literal literal, std::vector<Literal>& literals);
  /// Whether the literal was chosen, or was given at level 0 without a reason.
  bool is_choice(Literal literal) const {
    return facts_[pair_of(literal)].reason.kind == Reason::kChoice;
  }
  /// Whether a clause is the reason of one of its first two literals.
  bool is_reason(int32_t clause) const;

  /// Number of looks so far at an item, a clique or a clause.
  int64_t looks() const { return looks_; }

 private:
  struct Reason {
    enum Kind : int8_t {
      kChoice,
      kClause,    // a: the number of the clause.
      kBetween,   // a, b: x below y and y below z; implies x below z.
      kNoRoom,    // The other order needs more than the height.
      kExchange,  // a: survivor; side 0: upper limit of the sum, 1: lower limit.
    };
    Kind kind = kChoice;
    int8_t side = 0;
    int32_t a = 0;
    int32_t b = 0;
  };

  // Level, position and reason of the order of a pair.
  struct Fact {
    int32_t level = 0;
    int32_t position = 0;  // Index in the trail.
    Reason reason;
  };

  // An increase of a room. Its cause is `literal`, which puts an item there, or the items of
  // `clique` on that side. Without either, the room is given from the start.
  struct Growth {
    int32_t before;  // The previous growth of the key, or -1.
    int32_t key;     // side * items + item
    int64_t room;
    int32_t trail;  // The length of the trail then.
    Literal literal;
    int32_t clique;
  };

  // Lengths of trail_ and growths_ before the choice of a level.
  struct Mark {
    size_t trail;
    size_t growths;
  };

  // The sum of an exchange for one survivor: sizes of dying items below it, minus sizes of born
  // items below it. Open orders decide where it is between `least` and `most`.
  struct Window {
    int64_t least;
    int64_t most;
  };

  int32_t key_of(int side, int32_t item) const { return side * graph_.items() + item; }
  // The literal for `other` on the given side of the item.
  Literal on_side(int side, int32_t other, int32_t item) const {
    return side == 0 ? graph_.below(other, item) : graph_.below(item, other);
  }
  int64_t round_room(int side, int32_t item, int64_t units) const;
  int64_t least_units_for(int side, int32_t item, int64_t room) const;

  void fix_rooms();
  void fix_twins();
  void push(Literal literal, const Reason& reason);
  bool follow(Literal literal, const Reason& reason);
  void add_effects(Literal literal, int64_t sign);
  bool process(Literal literal);
  bool close_triangles(Literal literal);
  bool visit_clauses(Literal literal);
  bool check_exchanges(Literal literal);
  bool check_survivor(int32_t survivor);
  bool grow_rooms(Literal literal);
  bool grow(int side, int32_t item, int64_t units, Literal literal, int32_t clique);
  bool spread(int side, int32_t item);

  void explain(Literal literal, const Reason& reason, int32_t position,
               std::vector<Literal>& literals);
  void explain_no_room(Literal literal, int32_t position, std::vector<Literal>& literals);
  void explain_exchange(int32_t survivor, int side, int64_t least, int32_t left_out,
                        int32_t position, std::vector<Literal>& literals);
  void explain_sum(int side, int32_t item, int32_t clique, int64_t least, int32_t position,
                   std::vector<Literal>& literals);
  void add_enough(int64_t spare, std::vector<Literal>& literals);
  int64_t room_at(int side, int32_t item, int32_t position) const;
  void need(int side, int32_t item, int64_t room);
  void explain_needs(std::vector<Literal>& literals);

  const Instance& instance_;
  const Conflicts& conflicts_;
  const OrderGraph& graph_;
  Clauses& clauses_;
  const int64_t height_;
  bool impossible_ = false;
  std::vector<int8_t> values_;  // By literal.
  std::vector<Fact> facts_;     // By pair.
  std::vector<Literal> trail_;
  size_t processed_ = 0;  // Literals of the trail whose effects were added.
  std::vector<Mark> marks_;

  std::array<std::vector<int64_t>, 2> rooms_;
  std::vector<int32_t>
      last_growth_;  // Index in growths_ of a room's last growth, by key; -1: none.
  std::vector<Growth> growths_;
  std::vector<int32_t> grown_;  // Keys of grown rooms, for spread().
  size_t spread_ = 0;           // Entries of grown_ that were spread.
  std::vector<char> is_grown_;

  size_t words_;                              // Words of 64 bits in a set of items.
  std::vector<uint64_t> neighbours_;          // By item: set of its neighbours.
  std::vector<uint64_t> known_below_;         // By item: set of items known to be below it.
  std::vector<uint64_t> known_above_;         // By item: set of items known to be above it.
  std::array<std::vector<int64_t>, 2> sums_;  // [side][membership]: sum of the sizes on that side.
  std::vector<Window> windows_;               // By survivor.

  std::vector<Literal> conflict_;
  std::vector<int64_t> needed_;  // By growth: the room that an explanation needs.
  std::vector<int32_t> needs_;   // A heap of growths with a need, the latest first.
  struct Share {
    int32_t position;
    Literal literal;
    int64_t size;
  };
  std::vector<Share> shares_;  // Literals and sizes of a sum, for add_enough().
  int64_t looks_ = 0;
};

}  // namespace sluice::planner
