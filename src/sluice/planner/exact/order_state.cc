#include "sluice/planner/exact/order_state.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <tuple>
#include <utility>

namespace sluice::planner {

OrderState::OrderState(const Instance& instance, const Conflicts& conflicts,
                       const OrderGraph& graph, Clauses& clauses, int64_t height)
    : instance_(instance),
      conflicts_(conflicts),
      graph_(graph),
      clauses_(clauses),
      height_(height),
      values_(2 * static_cast<size_t>(graph.pairs()), 0),
      facts_(static_cast<size_t>(graph.pairs())),
      last_growth_(2 * static_cast<size_t>(graph.items()), -1),
      is_grown_(2 * static_cast<size_t>(graph.items()), 0),
      words_((static_cast<size_t>(graph.items()) + 63) / 64) {
  const auto count = static_cast<size_t>(graph.items());
  neighbours_.assign(count * words_, 0);
  known_below_ = known_above_ = neighbours_;
  for (Literal l = 0; l < 2 * graph.pairs(); ++l) {
    const auto other = static_cast<size_t>(graph.high(l));
    neighbours_[static_cast<size_t>(graph.low(l)) * words_ + other / 64] |= uint64_t{1}
                                                                            << other % 64;
  }
  for (const int side : {0, 1}) {
    rooms_[side].assign(count, 0);
    sums_[side].assign(graph.memberships(), 0);
  }
  for (const Clique& clique : graph.cliques()) impossible_ = impossible_ || clique.slack < 0;
  windows_.assign(graph.survivors().size(), {0, 0});
  for (size_t s = 0; s < windows_.size(); ++s) {
    for (const auto& member : graph.exchanges()[graph.survivors()[s].exchange].members) {
      (member.dies ? windows_[s].most : windows_[s].least) +=
          member.dies ? member.size : -member.size;
    }
  }
  fix_rooms();
  fix_twins();
}

// Sets the rooms that hold without any order: alignment keeps items from the top, and a fixed item
// has one offset.
void OrderState::fix_rooms() {
  for (int32_t i = 0; i < graph_.items() && !impossible_; ++i) {
    const int64_t fixed = instance_.fixed[i];
    const int64_t above = fixed >= 0 ? height_ - instance_.size[i] - fixed : 0;
    impossible_ = above < 0 || !grow(0, i, std::max<int64_t>(fixed, 0), kNoLiteral, -1) ||
                  !grow(1, i, above, kNoLiteral, -1);
  }
}

// Fixes the order of items with equal size, alignment and lifetime, because they can be exchanged.
void OrderState::fix_twins() {
  const auto traits = [&](int32_t i) {
    const Sections range = instance_.lifetime(i).front();
    return std::tuple(instance_.size[i], instance_.align[i], range.first, range.last);
  };
  std::vector<int32_t> items;
  for (int32_t i = 0; i < graph_.items(); ++i) {
    if (instance_.fixed[i] < 0) items.push_back(i);
  }
  std::stable_sort(items.begin(), items.end(),
                   [&](int32_t a, int32_t b) { return traits(a) < traits(b); });
  for (size_t k = 1; k < items.size(); ++k) {
    if (traits(items[k - 1]) == traits(items[k])) push(graph_.below(items[k - 1], items[k]), {});
  }
}

void OrderState::choose(Literal literal) {
  marks_.push_back({trail_.size(), growths_.size()});
  push(literal, {});
}

void OrderState::imply(Literal literal, int32_t clause) {
  if (clause == kNoClause) {
    push(literal, {});
  } else {
    push(literal, {Reason::kClause, 0, clause, 0});
  }
}

bool OrderState::is_reason(int32_t clause) const {
  const auto literals = std::as_const(clauses_).of(clause);
  return std::any_of(literals.begin(), literals.begin() + 2, [&](Literal literal) {
    const Reason& reason = facts_[pair_of(literal)].reason;
    return value(literal) > 0 && reason.kind == Reason::kClause && reason.a == clause;
  });
}

void OrderState::push(Literal literal, const Reason& reason) {
  values_[literal] = 1;
  values_[negated(literal)] = -1;
  facts_[pair_of(literal)] = {level(), static_cast<int32_t>(trail_.size()), reason};
  trail_.push_back(literal);
}

// Makes a derived literal true. Returns false and stores the conflict if the literal is false.
bool OrderState::follow(Literal literal, const Reason& reason) {
  if (value(literal) > 0) return true;
  if (value(literal) == 0) {
    push(literal, reason);
    return true;
  }
  conflict_.clear();
  explain(literal, reason, static_cast<int32_t>(trail_.size()), conflict_);
  conflict_.push_back(negated(literal));
  return false;
}

// Adds the effects of a true literal to sets, sums and windows; `sign` -1 removes them.
void OrderState::add_effects(Literal literal, int64_t sign) {
  const int32_t low = graph_.low(literal);
  const int32_t high = graph_.high(literal);
  known_below_[static_cast<size_t>(high) * words_ + static_cast<size_t>(low) / 64] ^= uint64_t{1}
                                                                                      << low % 64;
  known_above_[static_cast<size_t>(low) * words_ + static_cast<size_t>(high) / 64] ^= uint64_t{1}
                                                                                      << high % 64;
  const Sections both = graph_.cliques_of_both(low, high);
  int64_t* below = &sums_[0][graph_.membership(high, both.first)];
  int64_t* above = &sums_[1][graph_.membership(low, both.first)];
  for (int32_t k = 0; k < both.last - both.first; ++k) {
    below[k] += sign * instance_.size[low];
    above[k] += sign * instance_.size[high];
  }
  const auto survivors = graph_.survivor_pairs(pair_of(literal));
  for (const SurvivorPair& pair : survivors) {
    const bool is_below = pair.is_first == (literal < negated(literal));
    Window& window = windows_[pair.survivor];
    if (pair.dies) {
      (is_below ? window.least : window.most) += is_below ? sign * pair.size : -sign * pair.size;
    } else {
      (is_below ? window.most : window.least) += is_below ? -sign * pair.size : sign * pair.size;
    }
  }
  looks_ += both.last - both.first + static_cast<int64_t>(survivors.size());
}

void OrderState::cancel(int32_t level) {
  if (this->level() <= level) return;
  const Mark mark = marks_[level];
  while (trail_.size() > mark.trail) {
    const Literal literal = trail_.back();
    trail_.pop_back();
    if (trail_.size() < processed_) add_effects(literal, -1);
    values_[literal] = values_[negated(literal)] = 0;
  }
  processed_ = std::min(processed_, trail_.size());
  while (growths_.size() > mark.growths) {
    const Growth& growth = growths_.back();
    const bool is_above = growth.key >= graph_.items();
    const int32_t item = growth.key - (is_above ? graph_.items() : 0);
    last_growth_[growth.key] = growth.before;
    rooms_[is_above][item] = growth.before < 0 ? 0 : growths_[growth.before].room;
    growths_.pop_back();
  }
  for (size_t k = spread_; k < grown_.size(); ++k) is_grown_[grown_[k]] = 0;
  grown_.clear();
  spread_ = 0;
  marks_.resize(static_cast<size_t>(level));
}

bool OrderState::propagate() {
  if (impossible_) {
    conflict_.clear();
    return false;
  }
  while (true) {
    if (processed_ < trail_.size()) {
      if (!process(trail_[processed_++])) return false;
    } else if (spread_ < grown_.size()) {
      const int32_t key = grown_[spread_++];
      is_grown_[key] = 0;
      const int side = key >= graph_.items() ? 1 : 0;
      if (!spread(side, key - side * graph_.items())) return false;
    } else {
      grown_.clear();
      spread_ = 0;
      return true;
    }
  }
}

bool OrderState::process(Literal literal) {
  add_effects(literal, 1);
  return close_triangles(literal) && check_exchanges(literal) && visit_clauses(literal) &&
         grow_rooms(literal);
}

// Applies transitivity: items below `low` are below `high`, and items above `high` are above `low`.
bool OrderState::close_triangles(Literal literal) {
  const int32_t low = graph_.low(literal);
  const int32_t high = graph_.high(literal);
  const size_t low_row = static_cast<size_t>(low) * words_;
  const size_t high_row = static_cast<size_t>(high) * words_;
  looks_ += static_cast<int64_t>(words_);
  for (size_t w = 0; w < words_; ++w) {
    uint64_t set =
        known_below_[low_row + w] & neighbours_[high_row + w] & ~known_below_[high_row + w];
    for (; set != 0; set &= set - 1) {
      const auto item = static_cast<int32_t>(w * 64 + static_cast<size_t>(std::countr_zero(set)));
      const Reason reason{Reason::kBetween, 0, graph_.below(item, low), literal};
      if (!follow(graph_.below(item, high), reason)) return false;
    }
    set = known_above_[high_row + w] & neighbours_[low_row + w] & ~known_above_[low_row + w];
    for (; set != 0; set &= set - 1) {
      const auto item = static_cast<int32_t>(w * 64 + static_cast<size_t>(std::countr_zero(set)));
      const Reason reason{Reason::kBetween, 0, literal, graph_.below(high, item)};
      if (!follow(graph_.below(low, item), reason)) return false;
    }
  }
  return true;
}

bool OrderState::visit_clauses(Literal literal) {
  const Literal now_false = negated(literal);
  auto& watches = clauses_.watches(now_false);
  size_t kept = 0;
  bool good = true;
  for (size_t k = 0; k < watches.size(); ++k) {
    const Clauses::Watch watch = watches[k];
    ++looks_;
    if (!good || value(watch.other) > 0) {
      watches[kept++] = watch;
      continue;
    }
    const auto literals = clauses_.of(watch.clause);
    if (literals[0] == now_false) std::swap(literals[0], literals[1]);
    const auto open = value(literals[0]) > 0
                          ? literals.end()
                          : std::find_if(literals.begin() + 2, literals.end(),
                                         [&](Literal other) { return value(other) >= 0; });
    if (open != literals.end()) {
      std::swap(literals[1], *open);
      clauses_.watches(literals[1]).push_back({watch.clause, literals[0]});
      continue;
    }
    watches[kept++] = {watch.clause, literals[0]};
    good = follow(literals[0], {Reason::kClause, 0, watch.clause, 0});
  }
  watches.resize(kept);
  return good;
}

bool OrderState::check_exchanges(Literal literal) {
  for (const SurvivorPair& pair : graph_.survivor_pairs(pair_of(literal))) {
    if (!check_survivor(pair.survivor)) return false;
  }
  return true;
}

// Derives orders of members whose opposite would move the sum below -slack_before or above
// slack_after. Returns false at a conflict.
bool OrderState::check_survivor(int32_t survivor) {
  const Survivor& s = graph_.survivors()[survivor];
  const Exchange& exchange = graph_.exchanges()[s.exchange];
  const int64_t up = exchange.slack_after - windows_[survivor].least;
  const int64_t down = windows_[survivor].most + exchange.slack_before;
  ++looks_;
  for (const int side : {0, 1}) {
    if ((side == 0 ? up : down) >= 0) continue;
    conflict_.clear();
    const int64_t least = (side == 0 ? exchange.slack_after : exchange.slack_before) + 1;
    explain_exchange(survivor, side, least, -1, static_cast<int32_t>(trail_.size()), conflict_);
    return false;
  }
  for (const auto& member : exchange.members) {
    if (member.size <= up && member.size <= down) break;
    ++looks_;
    const Literal below = graph_.below(member.item, s.item);
    if (value(below) != 0) continue;
    const int8_t side = member.size > up ? 0 : 1;
    push((side == 0) == member.dies ? negated(below) : below,
         {Reason::kExchange, side, survivor, 0});
  }
  return true;
}

bool OrderState::grow_rooms(Literal literal) {
  const int32_t low = graph_.low(literal);
  const int32_t high = graph_.high(literal);
  const Sections both = graph_.cliques_of_both(low, high);
  for (int32_t c = both.first; c < both.last; ++c) {
    if (!grow(0, high, sums_[0][graph_.membership(high, c)], kNoLiteral, c) ||
        !grow(1, low, sums_[1][graph_.membership(low, c)], kNoLiteral, c)) {
      return false;
    }
  }
  return grow(0, high, rooms_[0][low] + instance_.size[low], literal, -1) &&
         grow(1, low, rooms_[1][high] + instance_.size[high], literal, -1);
}

// Rounds a room up so that the offset is a multiple of the alignment.
int64_t OrderState::round_room(int side, int32_t item, int64_t units) const {
  const int64_t align = instance_.align[item];
  if (align == 1) return units;
  if (side == 0) return align_up(units, align);
  const int64_t highest = height_ - instance_.size[item];
  return units > highest ? units : highest - align_down(highest - units, align);
}

// Returns the fewest units that round_room() rounds to `room` or more.
int64_t OrderState::least_units_for(int side, int32_t item, int64_t room) const {
  const int64_t align = instance_.align[item];
  if (align == 1) return room;
  if (side == 0) return align_down(room - 1, align) + 1;
  const int64_t highest = height_ - instance_.size[item];
  return room > highest ? room : highest - align_down(highest - room, align) - align + 1;
}

bool OrderState::grow(int side, int32_t item, int64_t units, Literal literal, int32_t clique) {
  if (units <= rooms_[side][item] && units > 0) return true;
  const int64_t room = round_room(side, item, units);
  if (room <= rooms_[side][item]) return true;
  const int32_t key = key_of(side, item);
  growths_.push_back(
      {last_growth_[key], key, room, static_cast<int32_t>(trail_.size()), literal, clique});
  last_growth_[key] = static_cast<int32_t>(growths_.size()) - 1;
  rooms_[side][item] = room;
  const int64_t below = rooms_[0][item];
  const int64_t most_below = height_ - instance_.size[item] - rooms_[1][item];
  if (below > most_below) {
    conflict_.clear();
    need(0, item, below);
    need(1, item, height_ - instance_.size[item] - below + 1);
    explain_needs(conflict_);
    return false;
  }
  if (!is_grown_[key]) {
    is_grown_[key] = 1;
    grown_.push_back(key);
  }
  return true;
}

// Applies the growth of a room to the neighbours. Items known to be beyond `item` need more room
// too. An item that does not fit beyond it within the height must be on the other side.
bool OrderState::spread(int side, int32_t item) {
  const int64_t end = rooms_[side][item] + instance_.size[item];
  const auto neighbours = conflicts_.of(item);
  looks_ += static_cast<int64_t>(neighbours.size());
  for (const int32_t other : neighbours) {
    const Literal beyond = on_side(side, item, other);
    if (value(beyond) > 0) {
      if (!grow(side, other, end, beyond, -1)) return false;
    } else if (value(beyond) == 0 &&
               end + instance_.size[other] + rooms_[1 - side][other] > height_) {
      push(negated(beyond), {Reason::kNoRoom, 0, 0, 0});
    }
  }
  return true;
}

}  // namespace sluice::planner
