#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "sluice/exe/executable.h"

namespace sluice::property {

/// A plan with one piece of damage.
struct Mutant {
  std::string kind;                ///< For example "wait dropped" or "buffer moved".
  std::string about;               ///< Place in the plan.
  std::vector<std::string> rules;  ///< The checker must report one of these rules.
  exe::Executable plan;
  /// Reason why this is a defect, if the plan alone shows it. Empty if a dry run must show it.
  std::string shown;
};

/// The kinds of damage.
std::vector<std::string> mutation_kinds();
/// The kinds of damage to messages and channels.
std::vector<std::string> message_kinds();

/// Returns up to `per_kind` mutants of every kind that the plan allows, spread over the plan by
/// `seed`. A mutant may be harmless, e.g. two swapped steps that do not depend on each other: a dry
/// run decides. `kinds` restricts the kinds; empty for all.
std::vector<Mutant> mutate(const exe::Executable& right, uint64_t seed, int per_kind,
                           const std::vector<std::string>& kinds = {});

}  // namespace sluice::property
