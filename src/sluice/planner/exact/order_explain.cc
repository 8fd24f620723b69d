// Explains the literals that OrderState derives: finds true literals from which they follow.
#include <algorithm>

#include "sluice/planner/exact/order_state.h"

namespace sluice::planner {

void OrderState::explain(Literal literal, std::vector<Literal>& literals) {
  const Fact& fact = facts_[pair_of(literal)];
  literals.clear();
  explain(literal, fact.reason, fact.position, literals);
}

// A reason uses only literals that were true when the trail had the length `position`.
void OrderState::explain(Literal literal, const Reason& reason, int32_t position,
                         std::vector<Literal>& literals) {
  switch (reason.kind) {
    case Reason::kChoice:
      break;
    case Reason::kClause:
      for (const Literal other : clauses_.of(reason.a)) {
        if (other != literal) literals.push_back(negated(other));
      }
      break;
    case Reason::kBetween:
      literals.push_back(reason.a);
      literals.push_back(reason.b);
      break;
    case Reason::kNoRoom:
      explain_no_room(literal, position, literals);
      break;
    case Reason::kExchange: {
      const Survivor& survivor = graph_.survivors()[reason.a];
      const Exchange& exchange = graph_.exchanges()[survivor.exchange];
      const int32_t low = graph_.low(literal);
      const int32_t member = low == survivor.item ? graph_.high(literal) : low;
      const int64_t slack = reason.side == 0 ? exchange.slack_after : exchange.slack_before;
      explain_exchange(reason.a, reason.side, slack + 1 - instance_.size[member], member, position,
                       literals);
      break;
    }
  }
}

// Explains why `high` cannot be below `low`: the room below `high`, both sizes and the room above
// `low` exceed the height.
void OrderState::explain_no_room(Literal literal, int32_t position,
                                 std::vector<Literal>& literals) {
  const int32_t low = graph_.low(literal);
  const int32_t high = graph_.high(literal);
  const int64_t below = room_at(0, high, position);
  need(0, high, below);
  need(1, low, height_ - instance_.size[low] - instance_.size[high] - below + 1);
  explain_needs(literals);
}

// Explains a limit on the sum of an exchange (see Window). Side 0: the sum is at least `least`.
// Side 1: the negative of the sum is at least `least`. `left_out` is a member whose order is
// ignored, or -1.
void OrderState::explain_exchange(int32_t survivor, int side, int64_t least, int32_t left_out,
                                  int32_t position, std::vector<Literal>& literals) {
  const Survivor& s = graph_.survivors()[survivor];
  int64_t sum = 0;
  shares_.clear();
  for (const auto& member : graph_.exchanges()[s.exchange].members) {
    const bool adds = member.dies == (side == 0);  // True: being below adds its size.
    if (!adds) sum -= member.size;
    if (member.item == left_out) continue;
    const Literal below = graph_.below(member.item, s.item);
    const Literal literal = adds ? below : negated(below);
    const int32_t at = facts_[pair_of(literal)].position;
    if (value(literal) <= 0 || at >= position) continue;
    sum += member.size;
    shares_.push_back({at, literal, member.size});
  }
  add_enough(sum - least, literals);
}

// Explains why the sizes of the clique's items on that side of `item` sum to at least `least`.
void OrderState::explain_sum(int side, int32_t item, int32_t clique, int64_t least,
                             int32_t position, std::vector<Literal>& literals) {
  int64_t sum = 0;
  shares_.clear();
  for (const int32_t other : graph_.cliques()[clique].items) {
    if (other == item) continue;
    const Literal literal = on_side(side, other, item);
    const int32_t at = facts_[pair_of(literal)].position;
    if (value(literal) <= 0 || at >= position) continue;
    sum += instance_.size[other];
    shares_.push_back({at, literal, instance_.size[other]});
  }
  add_enough(sum - least, literals);
}

// Adds the literals of the shares to `literals`. Drops the latest shares first, as long as the
// dropped sizes sum to at most `spare`.
void OrderState::add_enough(int64_t spare, std::vector<Literal>& literals) {
  std::sort(shares_.begin(), shares_.end(),
            [](const Share& a, const Share& b) { return a.position > b.position; });
  for (const Share& share : shares_) {
    if (share.size <= spare) {
      spare -= share.size;
    } else {
      literals.push_back(share.literal);
    }
  }
}

int64_t OrderState::room_at(int side, int32_t item, int32_t position) const {
  int32_t growth = last_growth_[key_of(side, item)];
  while (growth >= 0 && growths_[growth].trail > position) growth = growths_[growth].before;
  return growth < 0 ? 0 : growths_[growth].room;
}

// Records that explain_needs() must explain why the item has a room of at least `room`. Requires
// that it has that room now.
void OrderState::need(int side, int32_t item, int64_t room) {
  if (room <= 0) return;
  int32_t growth = last_growth_[key_of(side, item)];
  while (growths_[growth].before >= 0 && growths_[growths_[growth].before].room >= room) {
    growth = growths_[growth].before;
  }
  // Growths of level 0 hold in every plan: they need no reason.
  if (marks_.empty() || static_cast<size_t>(growth) < marks_.front().growths) return;
  if (needed_.size() < growths_.size()) needed_.resize(2 * growths_.size(), 0);
  if (needed_[growth] == 0) {
    needs_.push_back(growth);
    std::push_heap(needs_.begin(), needs_.end());
  }
  needed_[growth] = std::max(needed_[growth], room);
}

// A growth depends only on earlier growths. Handling the latest first visits each growth once, with
// the largest room needed of it.
void OrderState::explain_needs(std::vector<Literal>& literals) {
  while (!needs_.empty()) {
    std::pop_heap(needs_.begin(), needs_.end());
    const int32_t index = needs_.back();
    needs_.pop_back();
    const Growth& growth = growths_[index];
    const int side = growth.key >= graph_.items() ? 1 : 0;
    const int32_t item = growth.key - side * graph_.items();
    const int64_t units = least_units_for(side, item, needed_[index]);
    needed_[index] = 0;
    if (growth.literal != kNoLiteral) {
      literals.push_back(growth.literal);
      const int32_t other = side == 0 ? graph_.low(growth.literal) : graph_.high(growth.literal);
      need(side, other, units - instance_.size[other]);
    } else {
      explain_sum(side, item, growth.clique, units, growth.trail, literals);
    }
  }
}

}  // namespace sluice::planner
