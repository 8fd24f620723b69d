#pragma once
#include <cstdint>
#include <vector>

#include "sluice/planner/exact/exact.h"
#include "sluice/planner/instance.h"

namespace sluice::planner {

/// Larger than every height that is searched. Its sum with a size and an alignment fits in int64.
inline constexpr int64_t kNever = INT64_MAX / 4;

/// A set of sub-problems without a plan, as hashes of 64 bits. A new hash overwrites an older one
/// in its slot.
class Refuted {
 public:
  /// `expected` is the approximate number of insertions. The set has at most 2^20 slots.
  explicit Refuted(int64_t expected);
  bool contains(uint64_t key) const { return slots_[key & (slots_.size() - 1)] == key; }
  void insert(uint64_t key) { slots_[key & (slots_.size() - 1)] = key; }

 private:
  std::vector<uint64_t> slots_;
};

/// Builds plans from the bottom up: a placed item is below all waiting items that live at one time
/// with it.
///
/// If the waiting items have a plan, they have a settled one: a plan whose offsets have the minimum
/// sum, so that each item rests on the bottom or on another item. Its lowest waiting item is at its
/// base. No waiting item fits at or below that base, because placing it there would lessen the sum.
/// The search tries such an item. If that fails, the item rests on a waiting item in every settled
/// plan, which raises its `min`. Each step therefore places an item or raises one, and no plan is
/// visited twice.
class StackSearch {
 public:
  StackSearch(const Instance& instance, const Conflicts& conflicts, int64_t height,
              Refuted& refuted);

  /// Searches from the start with about `max_nodes` examinations of an item or a section. Among
  /// items with equal bases, the one with the lowest `rank` is tried first.
  Outcome run(std::vector<int32_t> rank, int64_t max_nodes);

  /// Nodes that the last run did not use; negative if it used more.
  int64_t left() const { return left_; }
  /// The plan of the last run, if it found one.
  const Offsets& offsets() const { return offsets_; }

 private:
  // Limits on the offset of a waiting item.
  struct State {
    int64_t base = 0;  // Offset if placed next: on top of placed items, or the fixed one.
    int64_t min = 0;   // Lowest offset in a settled plan. Above base: not placed next.
    bool operator==(const State&) const = default;
  };

  // Items list_[begin], …, list_[end - 1] in order of birth: all waiting items of their sections.
  struct Subproblem {
    size_t begin = 0;
    size_t end = 0;
    size_t size() const { return end - begin; }
  };

  // A part that is being solved, and the item placed in it. The rest of the part is split into
  // parts_[first_part] and its successors.
  struct Level {
    Subproblem part;
    uint64_t key = 0;
    size_t changes = 0;      // Size of changes_ before the part was entered.
    int32_t item = -1;       // The placed item; -1 at the root.
    size_t put_changes = 0;  // Size of changes_ before the item was placed.
    size_t list_begin = 0;   // Begin of the rest of the part in list_.
    size_t first_part = 0;
    size_t next_part = 0;
  };

  struct Change {
    int32_t item;
    State before;
  };

  template <typename Action>
  void for_sections(int32_t item, Action&& action) const {
    for (const Sections& range : instance_.lifetime(item)) {
      for (int32_t s = range.first; s < range.last; ++s) action(s);
    }
  }

  bool is_fixed(int32_t item) const { return instance_.fixed[item] >= 0; }
  int64_t min_end(int32_t item) const { return states_[item].min + instance_.size[item]; }

  void change(int32_t item, const State& state);
  void undo_changes(size_t count);
  bool put(int32_t item);
  void take_back(int32_t item, size_t changes);
  int64_t min_on_others(int32_t item);
  void raise(int32_t item);
  void split(size_t begin, size_t end);
  Outcome solve_all();
  Outcome enter(Subproblem part);
  Outcome try_next();
  Outcome leave(Outcome outcome);
  Outcome finish(Outcome outcome);
  int32_t next(Subproblem part);
  bool fits(int32_t first, int32_t last);
  uint64_t hash(Subproblem part) const;

  const Instance& instance_;
  const Conflicts& conflicts_;
  const int64_t height_;
  Refuted& refuted_;
  std::vector<int32_t> first_;     // First section of an item's lifetime.
  std::vector<int32_t> last_;      // One past its last section.
  std::vector<int32_t> by_first_;  // Items in order of birth.
  std::vector<int32_t> twins_;     // Next item in the ring of equal items.
  std::vector<int32_t> alive_;     // Items of each section: [alive_begin_[s], alive_begin_[s + 1]).
  std::vector<int64_t> alive_begin_;
  std::vector<int32_t> rank_;
  int64_t left_ = 0;  // Nodes left.
  Offsets offsets_;
  std::vector<char> waits_;       // Whether an item is not placed yet.
  std::vector<State> states_;     // Indexed by item; only for waiting items.
  std::vector<int64_t> waiting_;  // Sum of the waiting sizes of a section.
  std::vector<int32_t> witness_;  // Item that last passed fits(), by section.
  std::vector<int32_t> list_;     // A stack: the items of the part of each level.
  std::vector<Subproblem> parts_;
  std::vector<Level> levels_;
  std::vector<Change> changes_;
};

}  // namespace sluice::planner
