#pragma once
#include <cstdint>
#include <vector>

#include "sluice/planner/exact/exact.h"
#include "sluice/planner/instance.h"

namespace sluice::planner {

/// Above every height that is searched; sums of it with a size and an alignment stay in int64.
inline constexpr int64_t kNever = INT64_MAX / 4;

/// Sub-problems without a plan, as hashes of 64 bits. A new one takes the slot of an older one.
class Refuted {
 public:
  /// `expected`: about how many will be inserted. Holds at most 2^20.
  explicit Refuted(int64_t expected);
  bool contains(uint64_t key) const { return slots_[key & (slots_.size() - 1)] == key; }
  void insert(uint64_t key) { slots_[key & (slots_.size() - 1)] = key; }

 private:
  std::vector<uint64_t> slots_;
};

/// Builds plans up from the bottom: an item put is below all that wait and live at one time with
/// it.
///
/// If there is a plan for what waits, there is a settled one: one whose offsets have the least sum,
/// so that each item lies on the floor or on another. Its lowest waiting item is at its base, and
/// nothing that waits could end at or below that base: it would go there and lessen the sum. Such
/// an item is tried; if that fails, it lies in every settled plan on another that waits, which
/// raises its `least`. So each step either puts an item or raises it, and no plan is looked at
/// twice.
class StackSearch {
 public:
  StackSearch(const Instance& instance, const Conflicts& conflicts, int64_t height,
              Refuted& refuted);

  /// Searches from the start with about `max_nodes` looks at an item or a section. Of items with
  /// the same base, the one of the lowest rank is tried first.
  Outcome run(std::vector<int32_t> rank, int64_t max_nodes);

  /// Looks that the last run did not use; negative if it used more.
  int64_t left() const { return left_; }
  /// The plan of the last run, if it found one.
  const Places& places() const { return places_; }

 private:
  // Knowledge about an item that waits for its place.
  struct State {
    int64_t base = 0;   // Its offset if it is next: on top of what is placed, or the fixed one.
    int64_t least = 0;  // No settled plan puts it lower. Above base: it is not next.
    bool operator==(const State&) const = default;
  };

  // Items list_[begin], …, list_[end - 1], in order of birth: all that wait in their sections.
  struct Part {
    size_t begin = 0;
    size_t end = 0;
    size_t size() const { return end - begin; }
  };

  // A part being solved, and the item tried in it. The parts that are left after that item are
  // parts_[first_part] and what follows.
  struct Level {
    Part part;
    uint64_t key = 0;
    size_t changes = 0;      // Before the part was looked at.
    int32_t item = -1;       // The item that is tried; -1 at the root.
    size_t put_changes = 0;  // Before it was put.
    size_t list_begin = 0;   // The list of the rest begins here.
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
  int64_t least_end(int32_t item) const { return states_[item].least + instance_.size[item]; }

  void change(int32_t item, const State& state);
  void undo_changes(size_t count);
  bool put(int32_t item);
  void take_back(int32_t item, size_t changes);
  int64_t least_on_others(int32_t item);
  void raise(int32_t item);
  void split(size_t begin, size_t end);
  Outcome solve_all();
  Outcome enter(Part part);
  Outcome try_next();
  Outcome leave(Outcome outcome);
  Outcome finish(Outcome outcome);
  int32_t next(Part part);
  bool fits(int32_t first, int32_t last);
  uint64_t hash(Part part) const;

  const Instance& instance_;
  const Conflicts& conflicts_;
  const int64_t height_;
  Refuted& refuted_;
  std::vector<int32_t> first_;     // The first section of an item's life.
  std::vector<int32_t> last_;      // One past the last.
  std::vector<int32_t> by_first_;  // Items in order of birth.
  std::vector<int32_t> twins_;     // The next in the ring of items that are alike.
  std::vector<int32_t> alive_;     // Items of each section: [alive_begin_[s], alive_begin_[s + 1]).
  std::vector<int64_t> alive_begin_;
  std::vector<int32_t> rank_;
  int64_t left_ = 0;  // Nodes.
  Places places_;
  std::vector<char> waits_;       // Whether an item has no place yet.
  std::vector<State> states_;     // By item that waits.
  std::vector<int64_t> waiting_;  // The sum of sizes that wait in a section.
  std::vector<int32_t> witness_;  // An item that showed last that the section fits.
  std::vector<int32_t> list_;     // Parts being solved, one on top of the other.
  std::vector<Part> parts_;
  std::vector<Level> levels_;
  std::vector<Change> changes_;
};

}  // namespace sluice::planner
