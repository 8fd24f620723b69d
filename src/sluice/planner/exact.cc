#include "sluice/planner/exact.h"

#include <algorithm>
#include <vector>

namespace sluice::planner {
namespace {

// Among the lowest plans take one whose offsets have the least sum. Sorted by offset, each of its
// items lies on the floor or on an item before it, so building up in that order, always as low as
// possible, reaches it.
class Search {
 public:
  Search(const Instance& instance, int64_t max_nodes, Places& best)
      : instance_(instance),
        left_(max_nodes),
        best_(best),
        target_(height_of(instance, best) - 1),
        places_(best.size(), -1),
        floor_(best.size(), 0),
        meets_(best.size(), std::vector<char>(best.size(), 0)),
        skyline_(static_cast<size_t>(instance.sections), 0),
        waiting_(static_cast<size_t>(instance.sections), 0) {
    for (int32_t i = 0; i < count(); ++i) {
      for (const Sections& range : instance.lifetime(i)) {
        for (int32_t s = range.first; s < range.last; ++s) waiting_[s] += instance.size[i];
      }
      for (int32_t j = 0; j < count(); ++j) meets_[i][j] = i != j && meet(i, j);
    }
  }

  bool run() {
    descend(0, 0, -1);
    return left_ > 0;
  }

 private:
  int32_t count() const { return instance_.count(); }

  bool meet(int32_t a, int32_t b) const {
    for (const Sections& r : instance_.lifetime(a)) {
      for (const Sections& q : instance_.lifetime(b)) {
        if (r.first < q.last && q.first < r.last) return true;
      }
    }
    return false;
  }

  // Where an item goes if it is next: its fixed offset or on top of what is placed.
  int64_t place_of(int32_t item) const {
    return instance_.fixed[item] >= 0 ? instance_.fixed[item]
                                      : align_up(floor_[item], instance_.align[item]);
  }

  // Whether the items that wait cannot all end at or below the target, if none begins below `last`.
  bool hopeless(int64_t last) const {
    for (int32_t i = 0; i < count(); ++i) {
      if (places_[i] >= 0) continue;
      const int64_t begin = std::max(place_of(i), align_up(last, instance_.align[i]));
      if (begin + instance_.size[i] > target_) return true;
      const int64_t fixed = instance_.fixed[i];
      if (fixed >= 0 && (fixed < floor_[i] || fixed < last)) return true;
    }
    for (size_t s = 0; s < skyline_.size(); ++s) {
      if (waiting_[s] > 0 && std::max(skyline_[s], last) + waiting_[s] > target_) return true;
    }
    return false;
  }

  void descend(int32_t placed, int64_t last, int32_t last_item) {
    left_ -= count();
    if (placed == count()) {
      best_ = places_;
      target_ = height_of(instance_, best_) - 1;
      return;
    }
    if (left_ <= 0 || hopeless(last)) return;
    // An item that would end at or below the next place could go there first and only lower the
    // sum.
    int64_t end = INT64_MAX;
    for (int32_t i = 0; i < count(); ++i) {
      if (places_[i] < 0 && instance_.fixed[i] < 0) {
        end = std::min(end, place_of(i) + instance_.size[i]);
      }
    }
    std::vector<int32_t> next;
    for (int32_t i = 0; i < count(); ++i) {
      if (places_[i] >= 0) continue;
      const int64_t begin = place_of(i);
      const bool in_order = begin > last || (begin == last && i > last_item);
      if (in_order && begin < end) next.push_back(i);
    }
    std::sort(next.begin(), next.end(), [&](int32_t a, int32_t b) {
      const int64_t x = place_of(a);
      const int64_t y = place_of(b);
      if (x != y) return x < y;
      if (instance_.size[a] != instance_.size[b]) return instance_.size[a] > instance_.size[b];
      return a < b;
    });
    for (const int32_t item : next) {
      put(item, placed);
      if (left_ <= 0 || target_ < instance_.bound) return;
    }
  }

  void put(int32_t item, int32_t placed) {
    const int64_t begin = place_of(item);
    const int64_t end = begin + instance_.size[item];
    const auto old_floor = floor_;
    const auto old_skyline = skyline_;
    places_[item] = begin;
    for (int32_t i = 0; i < count(); ++i) {
      if (meets_[item][i]) floor_[i] = std::max(floor_[i], end);
    }
    for (const Sections& range : instance_.lifetime(item)) {
      for (int32_t s = range.first; s < range.last; ++s) {
        skyline_[s] = end;
        waiting_[s] -= instance_.size[item];
      }
    }
    descend(placed + 1, begin, item);
    for (const Sections& range : instance_.lifetime(item)) {
      for (int32_t s = range.first; s < range.last; ++s) waiting_[s] += instance_.size[item];
    }
    skyline_ = old_skyline;
    floor_ = old_floor;
    places_[item] = -1;
  }

  const Instance& instance_;
  int64_t left_;
  Places& best_;
  int64_t target_;  // Units: a plan must be this low to be worth finding.
  Places places_;
  std::vector<int64_t> floor_;            // The end of the topmost placed neighbour.
  std::vector<std::vector<char>> meets_;  // Whether two items live at one time.
  std::vector<int64_t> skyline_;          // The end of the topmost placed item of a section.
  std::vector<int64_t> waiting_;          // The sum of sizes still to place in a section.
};

}  // namespace

bool exact_search(const Instance& instance, int64_t max_nodes, Places& places) {
  return Search(instance, max_nodes, places).run();
}

}  // namespace sluice::planner
