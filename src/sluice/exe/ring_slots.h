#pragma once
#include <vector>

#include "sluice/exe/validate.h"

namespace sluice::exe {

/// Finds the ring slots that may be below 0, at which an address would lie before its ring. Each
/// slot is bounded by intervals: `it` is in [0, trips), `rep` in [0, replicas), and a parameter in
/// the smallest interval that holds the arguments of all calls. The indices of the executable must
/// be in range and no function may call itself (see validate).
///
/// Returns one problem for each step with such a slot. The bounds are sound: without a problem, no
/// run evaluates a slot below 0. They are not exact: a slot like `(p0-p1)` may be refused although
/// it is never below 0.
std::vector<Problem> negative_slots(const Executable& executable);

}  // namespace sluice::exe
