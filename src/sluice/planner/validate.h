#pragma once
#include <string>

#include "sluice/planner/problem.h"

namespace sluice::planner {

/// The rules of a plan, in the order in which validate() checks them.
enum class Rule {
  kOk,
  kBadCount,        ///< (R1) There is one offset for each buffer.
  kBadOffset,       ///< (R2) 0 <= offset, and offset + size fits in int64.
  kBadAlignment,    ///< (R3) offset is a multiple of alignment.
  kBadFixedOffset,  ///< (R4) offset is the fixed one where there is one.
  kBadOverlap,      ///< (R5) Two buffers alive at one step share no byte.
  kBadHeight,       ///< (R6) height is max(offset + size) over buffers that need bytes.
  kBadBound,        ///< (R7) bound is live_set_bound(problem), and at most height.
  kBadCapacity,     ///< (R8) height is at most the capacity.
};

/// The name of a rule, e.g. "bad overlap".
const char* to_string(Rule rule);

struct Verdict {
  Rule rule = Rule::kOk;
  std::string message;  ///< Names the buffers that break the rule; empty for kOk.
  explicit operator bool() const { return rule == Rule::kOk; }
};

/// Checks that `solution` is a plan for `problem`. Returns kOk or the first rule that it breaks.
/// Shares only live_set_bound() with the solver. O(n log n) for n buffers.
Verdict validate(const Problem& problem, const Solution& solution);

}  // namespace sluice::planner
