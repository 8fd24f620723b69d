#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "sluice/planner/instance.h"

namespace sluice::planner {

/// The offsets of an item, and the cost of moving it.
struct Slot {
  int64_t begin = -1;  ///< Offset in units; -1 if not placed.
  int64_t end = -1;    ///< begin + size.
  double weight = 0;
};

/// A neighbour that is placed.
struct Block {
  int64_t begin;
  int64_t end;
  double weight;
  int32_t item;
};

/// The fields of a block that Blocks::by_end() needs.
struct BlockEnd {
  int64_t end;
  double weight;
  int32_t item;
};

/// The placed neighbours of one item, sorted. Reuses its memory for the next item.
class Blocks {
 public:
  /// Collects the placed items of `neighbours`.
  void gather(std::span<const int32_t> neighbours, const std::vector<Slot>& slots);
  const std::vector<Block>& by_begin() const { return blocks_; }
  /// The blocks sorted by end; valid until the next gather().
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
  kTightest,  ///< The smallest hole that is large enough; the lowest of equal ones.
};

/// Places the items in `order`, fixed items first. Each item continues top of all earlier items
/// that live at one time with it, so holes stay empty. O(log n) for each item, with any number of
/// conflicts.
Offsets stack(const Instance& instance, const std::vector<int32_t>& order);

/// Walks through time like an allocator: an item takes the smallest free hole at its first birth
/// and frees it at its last death. All items are above the fixed ones. O(log n) for each item, with
/// any number of conflicts.
Offsets sweep(const Instance& instance);

/// Places the items in `order`, fixed items first. Each item goes to its hint if that is free, else
/// into a hole between earlier items, chosen by `fit`. O(log n) for each pair of neighbours.
Offsets first_fit(const Instance& instance, const Conflicts& conflicts,
                  const std::vector<int32_t>& order, Fit fit);

}  // namespace sluice::planner
