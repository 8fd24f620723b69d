#pragma once
#include <cstdint>
#include <vector>

#include "sluice/planner/instance.h"

namespace sluice::planner {

/// Weights of the choices of a repair. Exponents of sizes and counts are in quarters. The crowd of
/// an item is the largest sum of sizes alive at one time in its lifetime, divided by the largest
/// sum of all times.
struct Taste {
  /// The next item to place has the largest size^(priority_size / 4) · crowd^priority_crowd.
  int priority_size = 4;
  int priority_crowd = 16;
  /// Ejecting an item costs size^(cost_size / 4) · neighbours^(cost_pairs / 4) · crowd^cost_crowd.
  int cost_size = 2;
  int cost_pairs = 2;
  int cost_crowd = 32;
  /// Factor on both values of an item each time it ejects others.
  double growth = 1.05;
  /// Costs are scaled by a random factor in [1, 1 + jitter].
  double jitter = 0.3;
};

struct RepairOptions {
  int64_t height = 0;     ///< Units that the plan must fit into, at least the bound.
  int64_t max_nodes = 0;  ///< Maximum number of blocks that the repair may examine.
  /// The repair stops after this number of nodes without a new minimum of the total size of
  /// unplaced items.
  int64_t patience = 0;
  Taste taste;
  uint64_t seed = 0;  ///< Seed of the jitter.
};

/// Searches for a plan of `options.height` units by ejection. Items of `offsets` that are not
/// placed, or end above that height, are queued. An item is placed in the lowest hole, or else
/// where ejecting the conflicting blocks has the minimum cost. An item that ejects others becomes
/// more expensive to eject, so that difficult items settle. Returns whether all items are placed;
/// otherwise `offsets` is unchanged. Adds the nodes used to `nodes`.
bool repair(const Instance& instance, const Conflicts& conflicts, const std::vector<double>& crowd,
            const RepairOptions& options, Offsets& offsets, int64_t& nodes);

/// The crowd of each item, in (0, 1].
std::vector<double> crowd_of(const Instance& instance);

}  // namespace sluice::planner
