#pragma once
#include <cstdint>
#include <map>

#include "sluice/compiler/program.h"

namespace sluice::compiler {

/// Returns the slots of the ring of each stream of a feed, by stream, for the order of the program.
/// Requires bodies that are not projected on devices.
///
/// For fields f and g, let ahead(f, g) be the largest value that entries used of f minus entries
/// used of g has right before a use of f, over all programs. At that moment an infeed must have
/// made an element that has not left the ring of g; an outfeed must keep entries of f whose element
/// lacks g. So the ring of g of an infeed has the depth of the feed plus its lag: the largest
/// ahead(f, g) over f. The ring of f of an outfeed has the depth plus its lead: the largest
/// ahead(f, g) over g. ahead(f, f) is 0.
///
/// Error{kUsage} with the counts if a program does not use all fields of a feed equally often.
std::map<int32_t, int64_t> feed_slots(const Program& program);

}  // namespace sluice::compiler
