#pragma once
#include <cstdint>
#include <vector>

#include "sluice/planner/instance.h"

namespace sluice::planner {

/// How a repair chooses. Sizes count by a power in quarters; the crowd of an item, the largest sum of sizes alive at a
/// time of its life over the largest of all, by a whole power.
struct Taste {
  int turn_size =
      4;  ///< The item with the largest size^(turn_size / 4) · crowd^turn_crowd is next.
  int turn_crowd = 16;
  int cost_size =
      2;  ///< Ejecting an item costs size^(cost_size / 4) · neighbours^(cost_pairs / 4) ·
  int cost_pairs = 2;  ///< crowd^cost_crowd,
  int cost_crowd = 32;
  double growth = 1.05;  ///< and both grow by this factor each time it ejects others.
  double jitter = 0;     ///< Costs are scaled by a random factor in [1, 1 + jitter].
};

struct RepairOptions {
  int64_t height = 0;  ///< Units that the plan must fit into, at least the bound.
  int64_t max_nodes = 0;
  int64_t patience =
      0;  ///< Nodes after which it gives up unless the sum of sizes without a place has a new low.
  Taste taste;
  uint64_t seed = 0;
};

/// Looks for a plan of `options.height` by ejection: items of `places` without a place, or that end above, wait for
/// their turn. An item goes to the lowest hole, or else where it costs the least to eject what lies there. An item that
/// had to eject becomes dearer to eject, so the hard ones settle. Returns whether all found a place; `places` is
/// unchanged if not. Adds to `nodes` how many blocks it looked at.
bool repair(const Instance& instance, const Conflicts& conflicts, const std::vector<double>& crowd,
            const RepairOptions& options, Places& places, int64_t& nodes);

/// The crowd of each item, in (0, 1].
std::vector<double> crowd_of(const Instance& instance);

}  // namespace sluice::planner
