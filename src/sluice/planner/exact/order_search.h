#pragma once
#include <cstdint>
#include <vector>

#include "sluice/planner/exact/clauses.h"
#include "sluice/planner/exact/exact.h"
#include "sluice/planner/exact/order_graph.h"
#include "sluice/planner/exact/order_state.h"
#include "sluice/planner/instance.h"

namespace sluice::planner {

/// Pairs in order of activity: those that took part in conflicts lately come first.
class ActivityQueue {
 public:
  explicit ActivityQueue(int32_t pairs);
  bool empty() const { return heap_.empty(); }
  /// Removes and returns the most active pair.
  int32_t pop();
  /// Adds a pair unless it is there.
  void insert(int32_t pair);
  void raise(int32_t pair);
  /// Raises after this call count for more.
  void age() { amount_ /= kDecay; }

 private:
  static constexpr double kDecay = 0.95;

  void move_up(size_t index);
  void move_down(size_t index);
  void set(size_t index, int32_t pair);

  std::vector<double> activity_;
  double amount_ = 1;
  std::vector<int32_t> heap_;
  std::vector<int32_t> index_;  // In the heap, or -1.
};

/// Searches for a plan by choosing which of two items is the lower one, and learns a clause from
/// each conflict. It goes back as far as the clause says, so that choices which have no part in a
/// conflict are not varied, and it begins anew from time to time with what it learned.
class OrderSearch {
 public:
  /// For instances that OrderGraph takes.
  OrderSearch(const Instance& instance, const Conflicts& conflicts, int64_t height);

  /// Continues with about `max_nodes` looks at an item, a clique or a clause.
  Outcome run(int64_t max_nodes);

  /// Looks of all runs.
  int64_t nodes() const { return state_.looks() + analysis_looks_; }
  /// The plan, after kFound.
  Places places() const;

 private:
  // Order that each pair had: the last bit of the literal, or kNoPhase.
  using Phases = std::vector<int8_t>;
  static constexpr int8_t kNoPhase = -1;

  bool learn();
  int32_t analyse();
  void analyse_literals(const std::vector<Literal>& literals, int32_t level);
  void shorten();
  int32_t count_levels();
  void cancel(int32_t level);
  bool choose();
  Literal preferred(int32_t pair) const;
  int vote(int32_t pair) const;
  void keep_phases();
  void begin_anew();

  OrderGraph graph_;
  Clauses clauses_;
  OrderState state_;
  ActivityQueue queue_;
  int64_t analysis_looks_ = 0;
  Outcome outcome_ = Outcome::kGaveUp;

  Phases last_;     // The last order of each pair,
  Phases longest_;  // that in the longest trail without a conflict since it was cleared,
  size_t longest_length_ = 0;
  Phases best_;  // and that in the longest for some time more.
  size_t best_length_ = 0;

  int64_t conflicts_ = 0;
  int64_t restarts_ = 0;
  int64_t next_restart_ = 0;     // Conflicts.
  int64_t next_rephase_ = 1000;  // Conflicts.
  int64_t rephases_ = 0;
  size_t most_clauses_ = 20'000;

  std::vector<Literal> learned_;  // The first is the one that follows.
  std::vector<Literal> reasons_;
  std::vector<char> seen_;  // Pairs.
  std::vector<int32_t> seen_pairs_;
  int32_t open_ = 0;  // Literals of the conflict's level that are seen and not yet explained.
  std::vector<int32_t> levels_;
};

}  // namespace sluice::planner
