#pragma once
#include <cstdint>
#include <set>
#include <string>

#include "sluice/ir/ir.h"

namespace sluice::transforms {

/// Divides a program into one with stores to some streams and one without them.
///
/// Before: entry graph `entry`, or graphs that it calls, store to `streams`. After: entry graph
/// `copy` is a copy of it, with these stores, and `entry` does not have them. Both have the same
/// variables, other streams and remote buffers, and each has graphs of its own, so that a compiler
/// treats `entry` as if the stores had never been. Ops that only a removed store needs stay in
/// `entry`, until a compiler removes dead code. Error{kUsage} if `entry` does not exist or `copy`
/// does, and for a stream without a store.
Graph& split_stores(Ir ir, const std::string& entry, const std::string& copy,
                    const std::set<int32_t>& streams);

}  // namespace sluice::transforms
