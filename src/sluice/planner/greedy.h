#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "sluice/planner/instance.h"

namespace sluice::planner {

/// Where an item lies, and what it costs to put it elsewhere.
struct Slot {
  int64_t begin = -1;  ///< Units; -1 without a place.
  int64_t end = -1;    ///< begin + size.
  double weight = 0;
};

/// A neighbour with a place.
struct Block {
  int64_t begin;
  int64_t end;
  double weight;
  int32_t item;
};

/// The part of a block that its order by ends needs.
struct BlockEnd {
  int64_t end;
  double weight;
  int32_t item;
};

/// The neighbours of one item that have a place, in order. Keeps its memory between uses.
class Blocks {
 public:
  /// Collects the placed ones among `neighbours`.
  void gather(std::span<const int32_t> neighbours, const std::vector<Slot>& slots);
  const std::vector<Block>& by_begin() const { return blocks_; }
  /// Sorts again; valid until the next gather.
  const std::vector<BlockEnd>& by_end();

 private:
  template <typename Entry, typename Key>
  void sort(std::vector<Entry>& entries, std::vector<Entry>& scratch, Key key);

  std::vector<Block> blocks_;
  std::vector<Block> block_scratch_;
  std::vector<BlockEnd> ends_;
  std::vector<BlockEnd> end_scratch_;
  std::vector<uint32_t> fill_;
};

enum class Fit {
  kLowest,    ///< The lowest hole that is large enough.
  kTightest,  ///< The smallest such hole, the lowest of those.
};

/// Puts each item on top of all that were put before it and live at one time with it, in `order`;
/// fixed items come first. Every hole stays empty, but O(log n) an item whatever the number of
/// conflicts.
Places stack(const Instance& instance, const std::vector<int32_t>& order);

/// Walks through time as an allocator would: an item takes the smallest free hole when it is first
/// born and frees it when it dies for good. Lies above all fixed items. O(log n) an item whatever the
/// number of conflicts.
Places sweep(const Instance& instance);

/// Puts each item into a hole between those put before it, in `order`; fixed items come first, and
/// an item whose hint is free goes there. O(log n) for each pair of neighbours.
Places first_fit(const Instance& instance, const Conflicts& conflicts,
                 const std::vector<int32_t>& order, Fit fit);

}  // namespace sluice::planner
