#pragma once
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "sluice/ir/ir.h"

namespace sluice::property {

/// The recipe of a random program: equal recipes produce equal programs. Each decision (an op, a
/// call with its callee, …) draws numbers from its own key, so that leaving it out changes little
/// else.
struct Recipe {
  uint64_t seed = 0;
  std::set<uint64_t> skipped;  ///< Keys of decisions to leave out.
  /// Number of devices. Each op or call outside conditionals names one or inherits one.
  int devices = 1;
  bool all_operators = false;  ///< Draw all operators, not those of training steps alone.
};

/// Counts of the ops and features of a program.
struct Census {
  int ops = 0;  ///< Ops of all graphs.
  int calls = 0, by_reference = 0, repeats = 0, conditionals = 0, gradients = 0, updates = 0;
  int rotations = 0;  ///< Carried values that only rotate.
  int streams = 0, remote = 0, random_ops = 0, entry_graphs = 0;
  Census& operator+=(const Census& other);
};

struct RandomProgram {
  Ir ir;
  std::vector<std::string> runs;    ///< Names of the programs to run, in order.
  std::vector<uint64_t> decisions;  ///< Keys of the decisions, in order.
  Census census;
  /// Entries of input streams by id. Entries of other streams are random.
  std::map<int32_t, HostTensor> inputs = {};
};

/// Generates a program of 3 to 40 decisions on tiny tensors. One program in sixteen has tensors
/// large enough for several tasks of a kernel. It may have variables, streams with several entries,
/// remote buffers, calls by value and by reference, nested and repeated calls, loops, conditionals,
/// updates in place, random numbers and gradients.
RandomProgram random_program(const Recipe& recipe);

/// Counts the ops, streams and entry graphs of a complete program in its census.
void count_ops(RandomProgram& program);

/// Names of the operators that random programs never have, with the reason.
const std::map<std::string, std::string>& undrawn_operators();

/// Returns the names of the operators of the graphs that entries reach.
std::set<std::string> operators_of(const Ir& ir);

/// Returns the schedules of all graphs as text.
std::string text(const Ir& ir);

}  // namespace sluice::property
