#include "sluice/planner/greedy.h"

#include <algorithm>
#include <bit>
#include <map>
#include <set>
#include <utility>

namespace sluice::planner {
namespace {

// A segment tree of heights over the sections: the maximum of a range and the assignment to a range
// take O(log n).
class Skyline {
 public:
  explicit Skyline(int32_t sections)
      : leaves_(std::bit_ceil(static_cast<uint32_t>(std::max(sections, 1)))),
        highest_(2 * leaves_, 0),
        pending_(2 * leaves_, -1) {}

  int64_t highest(Sections range) { return highest(1, 0, leaves_, range); }
  void assign(Sections range, int64_t height) { assign(1, 0, leaves_, range, height); }

 private:
  void push(uint32_t node) {
    if (pending_[node] < 0) return;
    for (const uint32_t child : {2 * node, 2 * node + 1}) {
      highest_[child] = pending_[child] = pending_[node];
    }
    pending_[node] = -1;
  }

  int64_t highest(uint32_t node, uint32_t first, uint32_t last, Sections range) {
    const auto from = static_cast<uint32_t>(range.first);
    const auto to = static_cast<uint32_t>(range.last);
    if (to <= first || last <= from) return 0;
    if (from <= first && last <= to) return highest_[node];
    push(node);
    const uint32_t middle = (first + last) / 2;
    return std::max(highest(2 * node, first, middle, range),
                    highest(2 * node + 1, middle, last, range));
  }

  void assign(uint32_t node, uint32_t first, uint32_t last, Sections range, int64_t height) {
    const auto from = static_cast<uint32_t>(range.first);
    const auto to = static_cast<uint32_t>(range.last);
    if (to <= first || last <= from) return;
    if (from <= first && last <= to) {
      highest_[node] = pending_[node] = height;
      return;
    }
    push(node);
    const uint32_t middle = (first + last) / 2;
    assign(2 * node, first, middle, range, height);
    assign(2 * node + 1, middle, last, range, height);
    highest_[node] = std::max(highest_[2 * node], highest_[2 * node + 1]);
  }

  uint32_t leaves_;
  std::vector<int64_t> highest_;
  std::vector<int64_t> pending_;  // Height to pass on to the children, or -1.
};

// The free ranges of an arena without an upper end.
class Holes {
 public:
  explicit Holes(int64_t floor) { add(floor, INT64_MAX); }

  // Allocates `size` units in the smallest hole that has room. Returns their offset.
  int64_t take(int64_t size, int64_t align) {
    for (auto hole = by_size_.lower_bound({size, 0});; ++hole) {
      const auto [room, begin] = *hole;
      const int64_t offset = align_up(begin, align);
      if (offset - begin > room - size) continue;
      const int64_t end = begin + room;
      remove(begin, end);
      if (begin < offset) add(begin, offset);
      if (offset + size < end) add(offset + size, end);
      return offset;
    }
  }

  void give(int64_t begin, int64_t size) {
    int64_t end = begin + size;
    auto above = ends_.lower_bound(begin);
    if (above != ends_.begin()) {
      const auto [from, to] = *std::prev(above);
      if (to == begin) {
        remove(from, to);
        begin = from;
      }
    }
    if (above != ends_.end() && above->first == end) {
      const auto [from, to] = *above;
      remove(from, to);
      end = to;
    }
    add(begin, end);
  }

 private:
  void add(int64_t begin, int64_t end) {
    ends_.emplace(begin, end);
    by_size_.emplace(end - begin, begin);
  }

  void remove(int64_t begin, int64_t end) {
    ends_.erase(begin);
    by_size_.erase({end - begin, begin});
  }

  std::map<int64_t, int64_t> ends_;                // End of each hole, by its begin.
  std::set<std::pair<int64_t, int64_t>> by_size_;  // (size, begin)
};

int64_t find_hole(const std::vector<Block>& blocks, int64_t size, int64_t align, int64_t hint,
                  Fit fit) {
  int64_t top = 0;
  int64_t best = -1;
  int64_t best_room = 0;
  for (const Block& block : blocks) {
    const int64_t offset = align_up(top, align);
    const int64_t room = block.begin - offset;
    if (room >= size) {
      if (hint >= offset && hint + size <= block.begin) return hint;
      if (best < 0 || (fit == Fit::kTightest && room < best_room)) {
        best = offset;
        best_room = room;
        if (fit == Fit::kLowest && hint < 0) return best;
      }
    }
    top = std::max(top, block.end);
  }
  if (hint >= top) return hint;
  return best >= 0 ? best : align_up(top, align);
}

}  // namespace

template <typename Entry, typename Key>
void Blocks::sort(std::vector<Entry>& entries, std::vector<Entry>& scratch, Key key) {
  const auto less = [key](const Entry& a, const Entry& b) { return key(a) < key(b); };
  if (entries.size() < 48) {
    std::sort(entries.begin(), entries.end(), less);
    return;
  }
  // Sort by buckets of the leading bits of the key. Blocks spread evenly over the arena, so a
  // bucket holds one or two.
  int64_t highest = 0;
  for (const Entry& entry : entries) highest = std::max(highest, key(entry));
  const int size_bits = std::bit_width(uint32_t(entries.size()));
  const int key_bits = std::bit_width(uint64_t(highest));
  const int shift = std::max(0, key_bits - size_bits - 1);
  const auto bucket = [&](const Entry& entry) { return size_t(key(entry) >> shift); };
  fill_.assign(size_t(highest >> shift) + 2, 0);
  for (const Entry& entry : entries) ++fill_[bucket(entry) + 1];
  for (size_t i = 1; i < fill_.size(); ++i) fill_[i] += fill_[i - 1];
  scratch.resize(entries.size());
  for (const Entry& entry : entries) scratch[fill_[bucket(entry)]++] = entry;
  entries.swap(scratch);
  size_t first = 0;
  for (size_t last = 1; last <= entries.size(); ++last) {
    if (last < entries.size() && bucket(entries[last]) == bucket(entries[first])) continue;
    if (last - first > 1) std::sort(entries.begin() + first, entries.begin() + last, less);
    first = last;
  }
}

void Blocks::gather(std::span<const int32_t> neighbours, const std::vector<Slot>& slots) {
  blocks_.clear();
  for (const int32_t other : neighbours) {
    const Slot& slot = slots[other];
    if (slot.begin >= 0) blocks_.push_back({slot.begin, slot.end, slot.weight, other});
  }
  sort(blocks_, block_scratch_, [](const Block& block) { return block.begin; });
}

const std::vector<BlockEnd>& Blocks::by_end() {
  ends_.clear();
  for (const Block& block : blocks_) ends_.push_back({block.end, block.weight, block.item});
  sort(ends_, end_scratch_, [](const BlockEnd& block) { return block.end; });
  return ends_;
}

Offsets stack(const Instance& instance, const std::vector<int32_t>& order) {
  Skyline skyline(instance.sections);
  Offsets offsets = instance.fixed;
  const auto highest = [&](int32_t item) {
    int64_t height = 0;
    for (const Sections& range : instance.lifetime(item)) {
      height = std::max(height, skyline.highest(range));
    }
    return height;
  };
  for (int32_t i = 0; i < instance.count(); ++i) {
    if (instance.fixed[i] < 0) continue;
    const int64_t top = std::max(highest(i), instance.fixed[i] + instance.size[i]);
    for (const Sections& range : instance.lifetime(i)) skyline.assign(range, top);
  }
  for (const int32_t i : order) {
    if (instance.fixed[i] >= 0) continue;
    offsets[i] = align_up(highest(i), instance.align[i]);
    for (const Sections& range : instance.lifetime(i)) {
      skyline.assign(range, offsets[i] + instance.size[i]);
    }
  }
  return offsets;
}

Offsets sweep(const Instance& instance) {
  struct Event {
    int32_t section;
    bool birth;
    int64_t size;
    int32_t item;
  };
  Offsets offsets = instance.fixed;
  std::vector<Event> events;
  int64_t floor = 0;
  for (int32_t i = 0; i < instance.count(); ++i) {
    if (instance.fixed[i] >= 0) {
      floor = std::max(floor, instance.fixed[i] + instance.size[i]);
      continue;
    }
    events.push_back({instance.lifetime(i).front().first, true, instance.size[i], i});
    events.push_back({instance.lifetime(i).back().last, false, instance.size[i], i});
  }
  // Deaths are first, because they free room. Of the items born together, the largest is first.
  std::sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
    if (a.section != b.section) return a.section < b.section;
    if (a.birth != b.birth) return b.birth;
    return a.size != b.size ? a.size > b.size : a.item < b.item;
  });
  Holes holes(floor);
  for (const Event& event : events) {
    if (event.birth) {
      offsets[event.item] = holes.take(event.size, instance.align[event.item]);
    } else {
      holes.give(offsets[event.item], event.size);
    }
  }
  return offsets;
}

Offsets first_fit(const Instance& instance, const Conflicts& conflicts,
                  const std::vector<int32_t>& order, Fit fit) {
  Offsets offsets = instance.fixed;
  std::vector<Slot> slots(offsets.size());
  const auto put = [&](int32_t item, int64_t begin) {
    offsets[item] = begin;
    slots[item] = {begin, begin + instance.size[item], 0};
  };
  for (int32_t i = 0; i < instance.count(); ++i) {
    if (instance.fixed[i] >= 0) put(i, instance.fixed[i]);
  }
  Blocks blocks;
  for (const int32_t i : order) {
    if (instance.fixed[i] >= 0) continue;
    blocks.gather(conflicts.of(i), slots);
    put(i,
        find_hole(blocks.by_begin(), instance.size[i], instance.align[i], instance.hint[i], fit));
  }
  return offsets;
}

}  // namespace sluice::planner
