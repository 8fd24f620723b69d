#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "../damage.h"

namespace sluice::property {

/// The kinds of damage.
std::vector<std::string> mutation_kinds();
/// The kinds of damage to messages and channels.
std::vector<std::string> message_kinds();
/// Returns `kinds` without those of `left_out`.
std::vector<std::string> kinds_without(std::vector<std::string> kinds,
                                       const std::vector<std::string>& left_out);

/// Returns up to `per_kind` damages of every kind that the plan allows, spread over the plan by
/// `seed`. A larger number adds damages to those of a smaller one. A damage may be harmless, e.g.
/// two swapped steps that do not depend on each other: a dry run decides. `kinds` restricts the
/// kinds; empty for all.
std::vector<Damage> mutations(const exe::Executable& right, uint64_t seed, int per_kind,
                              const std::vector<std::string>& kinds = {});

}  // namespace sluice::property
