#include "sluice/planner/exact/order_search.h"

#include <algorithm>
#include <utility>

namespace sluice::planner {
namespace {

constexpr int64_t kRestartConflicts = 400;
constexpr int64_t kRephaseConflicts = 1000;
constexpr size_t kMoreClauses = 500;  // Raises the limit when half of the clauses are discarded.
constexpr size_t kMostLiterals = size_t{1} << 23;
constexpr double kMostActivity = 1e100;

// The Luby sequence 1, 1, 2, 1, 1, 2, 4, 1, 1, 2, 1, 1, 2, 4, 8, … from index 0 (Luby, Sinclair,
// Zuckerman 1993).
int64_t luby(int64_t index) {
  int64_t length = 1;
  while (length < index + 1) length = 2 * length + 1;
  while (length != index + 1) {
    length /= 2;
    index %= length;
    while (length / 2 >= index + 1) length /= 2;
  }
  return (length + 1) / 2;
}

}  // namespace

ActivityQueue::ActivityQueue(int32_t pairs)
    : activity_(static_cast<size_t>(pairs), 0), index_(static_cast<size_t>(pairs), -1) {
  for (int32_t p = 0; p < pairs; ++p) insert(p);
}

void ActivityQueue::set(size_t index, int32_t pair) {
  heap_[index] = pair;
  index_[pair] = static_cast<int32_t>(index);
}

void ActivityQueue::move_up(size_t index) {
  const int32_t pair = heap_[index];
  for (; index > 0; index = (index - 1) / 2) {
    const int32_t above = heap_[(index - 1) / 2];
    if (activity_[pair] <= activity_[above]) break;
    set(index, above);
  }
  set(index, pair);
}

void ActivityQueue::move_down(size_t index) {
  const int32_t pair = heap_[index];
  for (size_t child = 2 * index + 1; child < heap_.size(); child = 2 * index + 1) {
    if (child + 1 < heap_.size() && activity_[heap_[child + 1]] > activity_[heap_[child]]) ++child;
    if (activity_[heap_[child]] <= activity_[pair]) break;
    set(index, heap_[child]);
    index = child;
  }
  set(index, pair);
}

int32_t ActivityQueue::pop() {
  const int32_t pair = heap_.front();
  const int32_t last = heap_.back();
  heap_.pop_back();
  index_[pair] = -1;
  if (!heap_.empty()) {
    set(0, last);
    move_down(0);
  }
  return pair;
}

void ActivityQueue::insert(int32_t pair) {
  if (index_[pair] >= 0) return;
  heap_.push_back(pair);
  move_up(heap_.size() - 1);
}

void ActivityQueue::raise(int32_t pair) {
  activity_[pair] += amount_;
  if (activity_[pair] > kMostActivity) {
    for (double& activity : activity_) activity /= kMostActivity;
    amount_ /= kMostActivity;
  }
  if (index_[pair] >= 0) move_up(static_cast<size_t>(index_[pair]));
}

OrderSearch::OrderSearch(const Instance& instance, const Conflicts& conflicts, int64_t height)
    : graph_(instance, conflicts, height),
      clauses_(2 * graph_.pairs()),
      state_(instance, conflicts, graph_, clauses_, height),
      queue_(graph_.pairs()),
      last_(static_cast<size_t>(graph_.pairs()), kNoPhase),
      longest_(last_),
      best_(last_),
      next_restart_(kRestartConflicts * luby(0)),
      seen_(last_.size(), 0) {}

Outcome OrderSearch::run(int64_t max_nodes) {
  const int64_t end = nodes() + max_nodes;
  while (outcome_ == Outcome::kGaveUp && nodes() < end) {
    if (!state_.propagate()) {
      if (!learn()) outcome_ = Outcome::kRefuted;
    } else if (!choose()) {
      outcome_ = Outcome::kFound;
    }
  }
  return outcome_;
}

Places OrderSearch::places() const {
  Places places;
  for (int32_t i = 0; i < graph_.items(); ++i) places.push_back(state_.room_below(i));
  return places;
}

// Learns a clause from the conflict and returns to an earlier level. Returns false if the conflict
// depends on no choice: then no plan exists.
bool OrderSearch::learn() {
  ++conflicts_;
  keep_phases();
  const int32_t level = analyse();
  if (level < 0) return false;
  cancel(level);
  if (learned_.size() == 1) {
    state_.imply(learned_[0], OrderState::kNoClause);
  } else {
    const int32_t clause = clauses_.add(learned_, count_levels());
    state_.imply(learned_[0], clause);
  }
  queue_.age();
  if (conflicts_ >= next_restart_) begin_anew();
  if (clauses_.count() > most_clauses_ || clauses_.literals() > kMostLiterals) {
    clauses_.discard_half([&](int32_t clause) { return state_.is_reason(clause); });
    most_clauses_ += kMoreClauses;
  }
  return true;
}

// Derives a clause in which exactly one literal has the conflict's level. Returns the level at
// which the clause implies that literal, or -1 for a conflict at level 0.
int32_t OrderSearch::analyse() {
  reasons_ = state_.conflict();
  int32_t level = 0;
  for (const Literal l : reasons_) level = std::max(level, state_.level_of(pair_of(l)));
  if (level == 0) return -1;
  cancel(level);
  learned_.assign(1, kNoLiteral);
  open_ = 0;
  size_t index = state_.trail().size();
  while (true) {
    analyse_literals(reasons_, level);
    do {
      --index;
    } while (!seen_[pair_of(state_.trail()[index])]);
    const Literal literal = state_.trail()[index];
    if (--open_ == 0) {
      learned_[0] = negated(literal);
      break;
    }
    state_.explain(literal, reasons_);
  }
  shorten();
  for (const int32_t pair : seen_pairs_) seen_[pair] = 0;
  seen_pairs_.clear();
  // Move the literal that became false last to the second position, which is watched.
  int32_t back = 0;
  for (size_t k = 1; k < learned_.size(); ++k) {
    const int32_t other = state_.level_of(pair_of(learned_[k]));
    if (other <= back) continue;
    back = other;
    std::swap(learned_[1], learned_[k]);
  }
  analysis_looks_ += 4 * static_cast<int64_t>(learned_.size());
  return back;
}

void OrderSearch::analyse_literals(const std::vector<Literal>& literals, int32_t level) {
  for (const Literal literal : literals) {
    const int32_t pair = pair_of(literal);
    const int32_t of_pair = state_.level_of(pair);
    if (seen_[pair] || of_pair == 0) continue;
    seen_[pair] = 1;
    seen_pairs_.push_back(pair);
    queue_.raise(pair);
    if (of_pair == level) {
      ++open_;
    } else {
      learned_.push_back(negated(literal));
    }
  }
}

// Removes literals that are redundant, given the other literals of the clause.
void OrderSearch::shorten() {
  const auto is_seen = [&](Literal literal) {
    return seen_[pair_of(literal)] || state_.level_of(pair_of(literal)) == 0;
  };
  const auto follows = [&](Literal literal) {
    if (state_.is_choice(negated(literal))) return false;
    state_.explain(negated(literal), reasons_);
    return std::all_of(reasons_.begin(), reasons_.end(), is_seen);
  };
  learned_.erase(std::remove_if(learned_.begin() + 1, learned_.end(), follows), learned_.end());
}

// Counts the different levels of the learned clause.
int32_t OrderSearch::count_levels() {
  levels_.clear();
  for (const Literal literal : learned_) levels_.push_back(state_.level_of(pair_of(literal)));
  std::sort(levels_.begin(), levels_.end());
  const auto end = std::unique(levels_.begin(), levels_.end());
  return static_cast<int32_t>(end - levels_.begin());
}

void OrderSearch::cancel(int32_t level) {
  const auto& trail = state_.trail();
  if (state_.level() <= level) return;
  for (size_t k = trail.size(); k-- > 0 && state_.level_of(pair_of(trail[k])) > level;) {
    last_[pair_of(trail[k])] = static_cast<int8_t>(trail[k] & 1);
    queue_.insert(pair_of(trail[k]));
  }
  state_.cancel(level);
}

// Chooses an open order, which opens a level. Returns false if every order is chosen.
bool OrderSearch::choose() {
  while (!queue_.empty()) {
    const int32_t pair = queue_.pop();
    const Literal literal = preferred(pair);
    if (state_.value(literal) != 0) continue;
    state_.choose(literal);
    return true;
  }
  return false;
}

Literal OrderSearch::preferred(int32_t pair) const {
  const auto with = [&](int phase) { return static_cast<Literal>(2 * pair + phase); };
  if (longest_[pair] != kNoPhase) return with(longest_[pair]);
  if (last_[pair] != kNoPhase) return with(last_[pair]);
  const int votes = vote(pair);
  if (votes != 0) return with(votes > 0 ? 0 : 1);
  const auto lowness = [&](int32_t item) {
    return state_.room_below(item) - state_.room_above(item);
  };
  return with(lowness(graph_.low(2 * pair)) > lowness(graph_.high(2 * pair)) ? 1 : 0);
}

// A born item usually takes the place of a dying one. Returns a positive number if the exchanges
// favour the first item below the second, a negative one for the opposite.
int OrderSearch::vote(int32_t pair) const {
  int votes = 0;
  for (const SurvivorPair& p : graph_.survivor_pairs(pair)) {
    const Survivor& survivor = graph_.survivors()[p.survivor];
    int below = 0;
    for (const auto& member : graph_.exchanges()[survivor.exchange].members) {
      below += state_.value(graph_.below(member.item, survivor.item));
    }
    votes += p.is_first ? below : -below;
  }
  return votes;
}

// Stores the orders of the trail before the last choice, which has no conflict, if it is the
// longest so far.
void OrderSearch::keep_phases() {
  const auto& trail = state_.trail();
  const size_t length = state_.trail_before_choice();
  const auto keep = [&](Phases& phases, size_t& most) {
    if (length <= most) return;
    most = length;
    for (size_t k = 0; k < length; ++k) {
      phases[pair_of(trail[k])] = static_cast<int8_t>(trail[k] & 1);
    }
  };
  keep(longest_, longest_length_);
  keep(best_, best_length_);
}

// Restarts at level 0. Sometimes also replaces the preferred orders: by the best ones, by none, or
// by the opposite of the last ones.
void OrderSearch::begin_anew() {
  cancel(0);
  next_restart_ = conflicts_ + kRestartConflicts * luby(++restarts_);
  if (conflicts_ < next_rephase_) return;
  next_rephase_ = conflicts_ + kRephaseConflicts * ++rephases_;
  longest_length_ = 0;
  longest_.assign(longest_.size(), kNoPhase);
  const int64_t kind = rephases_ % 4;
  for (size_t p = 0; p < last_.size(); ++p) {
    if (kind == 1) {
      last_[p] = kNoPhase;
    } else if (kind == 3) {
      if (last_[p] != kNoPhase) last_[p] ^= 1;
    } else if (best_[p] != kNoPhase) {
      last_[p] = best_[p];
    }
  }
  best_length_ = 0;
}

}  // namespace sluice::planner
