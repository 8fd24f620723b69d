#pragma once
#include <cstdint>
#include <vector>

#include "sluice/planner/instance.h"

namespace sluice::planner {

/// How a repair chooses. Sizes and counts are taken to a power in quarters. The crowd of an item is
/// the largest sum of sizes alive at a time of its life, over the largest of all.
struct Taste {
  /// The item with the largest size^(turn_size / 4) · crowd^turn_crowd is next.
  int turn_size = 4;
  int turn_crowd = 16;
  /// Ejecting an item costs size^(cost_size / 4) · neighbours^(cost_pairs / 4) · crowd^cost_crowd.
  int cost_size = 2;
  int cost_pairs = 2;
  int cost_crowd = 32;
  /// Both are multiplied by this each time the item ejects others.
  double growth = 1.05;
  /// Costs are scaled by a random factor in [1, 1 + jitter].
  double jitter = 0.3;
};

struct RepairOptions {
  int64_t height = 0;     ///< Units that the plan must fit into, at least the bound.
  int64_t max_nodes = 0;  ///< Blocks it may look at.
  /// Nodes after which it gives up unless the sum of sizes without a place has a new low.
  int64_t patience = 0;
  Taste taste;
  uint64_t seed = 0;  ///< Of the jitter.
};

/// Looks for a plan of `options.height` by ejection: items of `places` without a place, or that end
/// above, wait for their turn. An item goes to the lowest hole, or else where it costs the least to
/// eject what lies there. An item that had to eject becomes dearer to eject, so the hard ones settle.
/// Returns whether all found a place; `places` is unchanged if not. Adds the nodes used to `nodes`.
bool repair(const Instance& instance, const Conflicts& conflicts, const std::vector<double>& crowd,
            const RepairOptions& options, Places& places, int64_t& nodes);

/// The crowd of each item, in (0, 1].
std::vector<double> crowd_of(const Instance& instance);

}  // namespace sluice::planner
