#pragma once
#include <cstdint>
#include <vector>

#include "sluice/planner/exact/clauses.h"
#include "sluice/planner/exact/exact.h"
#include "sluice/planner/exact/order_graph.h"
#include "sluice/planner/exact/order_state.h"
#include "sluice/planner/instance.h"

namespace sluice::planner {

/// Priority queue of pairs by activity: pairs of recent conflicts are first.
class ActivityQueue {
 public:
  explicit ActivityQueue(int32_t pairs);
  bool empty() const { return heap_.empty(); }
  /// Removes and returns the most active pair.
  int32_t pop();
  /// Adds a pair unless the queue contains it.
  void insert(int32_t pair);
  void raise(int32_t pair);
  /// Gives later calls of raise() more weight than earlier ones.
  void age() { amount_ /= kDecay; }

 private:
  static constexpr double kDecay = 0.95;

  void move_up(size_t index);
  void move_down(size_t index);
  void set(size_t index, int32_t pair);

  std::vector<double> activity_;
  double amount_ = 1;
  std::vector<int32_t> heap_;
  std::vector<int32_t> index_;  // Position in the heap, or -1.
};

/// Searches for a plan by choosing which item of each pair is the lower one (conflict-driven clause
/// learning). Each conflict yields a clause, and the search returns to the level at which the
/// clause implies a literal. Choices that have no part in the conflict are not tried both ways.
/// Restarts keep the learned clauses.
class OrderSearch {
 public:
  /// The instance must pass OrderGraph::takes(). `height` is in units.
  OrderSearch(const Instance& instance, const Conflicts& conflicts, int64_t height);

  /// Continues the search with about `max_nodes` looks at an item, a clique or a clause.
  Outcome run(int64_t max_nodes);

  /// Looks of all runs together.
  int64_t nodes() const { return state_.looks() + analysis_looks_; }
  /// The plan; valid after run() returned kFound.
  Places places() const;

 private:
  // An order for each pair: the last bit of the literal, or kNoPhase.
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

  Phases last_;     // Last order of each pair.
  Phases longest_;  // Orders in the longest trail without a conflict since they were cleared.
  size_t longest_length_ = 0;
  Phases best_;  // Like longest_, but never cleared.
  size_t best_length_ = 0;

  int64_t conflicts_ = 0;
  int64_t restarts_ = 0;
  int64_t next_restart_ = 0;     // Number of conflicts at which the next restart comes.
  int64_t next_rephase_ = 1000;  // Number of conflicts at which the next rephase comes.
  int64_t rephases_ = 0;
  size_t most_clauses_ = 20'000;

  std::vector<Literal> learned_;  // A clause; it implies its first literal.
  std::vector<Literal> reasons_;
  std::vector<char> seen_;  // By pair.
  std::vector<int32_t> seen_pairs_;
  int32_t open_ = 0;  // Seen literals of the conflict's level that are not yet explained.
  std::vector<int32_t> levels_;
};

}  // namespace sluice::planner
