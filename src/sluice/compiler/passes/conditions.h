#pragma once
#include "sluice/compiler/program.h"

namespace sluice::compiler {

/// Before: a loop with a condition has one condition, updated by a node of one device. All nodes
/// name their devices. After: such a loop has an updated condition on each device that runs a node
/// of its body, a copy of the first one, and a number (Node::Loop::exit). Projected on devices, all
/// parts of the loop then exit together.
/// Returns the number of loops with a condition.
int64_t spread_conditions(Program& program);

/// Leaves the part of a loop on one device the condition of this device. `new_index`: index of each
/// input of the whole loop among the inputs of the part, or -1.
void keep_own_condition(Node::Loop& part, const std::vector<int32_t>& new_index);

}  // namespace sluice::compiler
