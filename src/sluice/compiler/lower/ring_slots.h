#pragma once
#include <cstdint>

#include "sluice/compiler/lower/storage.h"

namespace sluice::compiler {

/// Puts values that live before or after a loop into slots of the loop's rings that are free then.
/// They must be of the tensor that the ring holds, for other micro-batches. A ring is one range of
/// bytes, so it is in use from its first value to its last one. A step in stages makes some values
/// of its ramps before the first and after the last value of the ring; without this pass they would
/// are next to the free slots. Changes nothing that would raise the largest number of bytes in use.
/// Returns the number of blocks that moved.
int64_t fill_ring_slots(const Body& body, Storage& storage);

}  // namespace sluice::compiler
