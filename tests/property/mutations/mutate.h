#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "sluice/exe/executable.h"

namespace sluice::property {

/// A plan with one piece of damage.
struct Mutant {
  std::string kind;                ///< "wait dropped", "buffer moved", …
  std::string about;               ///< Where.
  std::vector<std::string> rules;  ///< The checker must name one of these.
  exe::Executable plan;
  /// Why this is a defect, where that can be said from the plan alone; empty: a dry run must show
  /// it.
  std::string shown;
};

/// The kinds of damage.
std::vector<std::string> mutation_kinds();
/// Those of messages and channels.
std::vector<std::string> message_kinds();

/// Up to `per_kind` candidates of every kind that the plan offers, chosen by `seed`, spread over
/// the plan. A candidate may turn out harmless (two steps swapped that do not depend on each
/// other): what it does is for a dry run to say. `kinds`: of these kinds only; empty: of all.
std::vector<Mutant> mutate(const exe::Executable& right, uint64_t seed, int per_kind,
                           const std::vector<std::string>& kinds = {});

}  // namespace sluice::property
