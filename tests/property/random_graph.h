#pragma once
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "sluice/ir/ir.h"

namespace sluice::property {

/// What a random program is made from: the same recipe gives the same program. A decision (an op, a
/// call with the graph it calls, …) draws its numbers from its own key, so that one left out
/// changes little of the rest.
struct Recipe {
  uint64_t seed = 0;
  std::set<uint64_t> skipped;  ///< Keys of decisions that are left out.
  /// Ops and calls of all graphs but arms of conditionals are on one of so many devices, or inherit one.
  int devices = 1;
};

/// How often a program has each thing.
struct Census {
  int ops = 0;  ///< Of all graphs.
  int calls = 0, by_reference = 0, repeats = 0, conditionals = 0, gradients = 0, updates = 0;
  int streams = 0, remote = 0, random_ops = 0, entry_graphs = 0;
  Census& operator+=(const Census& other);
};

struct RandomProgram {
  Ir ir;
  std::vector<std::string> runs;    ///< Programs in the order in which to run them.
  std::vector<uint64_t> decisions;  ///< Keys, in the order taken.
  Census census;
};

/// A program of 3 to 40 decisions on tiny tensors (one in sixteen on tensors large enough for
/// several tasks a kernel): variables, streams with several entries, remote buffers, calls by value and by
/// reference, nested and repeated ones, loops, conditionals, updates in place, random numbers,
/// gradients.
RandomProgram random_program(const Recipe& recipe);

/// All schedules.
std::string text(const Ir& ir);

}  // namespace sluice::property
