#pragma once
#include <cstdint>
#include <vector>

#include "sluice/exe/executable.h"

namespace sluice::check {

/// Facts about a function that the checker computes before it runs the function.
struct FunctionFacts {
  /// Sends, receives, runs collectives or uses streams, itself or in a callee.
  bool communicates = false;
  bool transfers = false;  ///< Communicates or moves remote entries, itself or in a callee.
  /// Number of remote entries that one activation moves, callees and both arms of branches
  /// included. Saturates at INT64_MAX.
  int64_t moved = 0;
  bool exits = false;  ///< Has a loop with a condition, itself or in a callee.
  /// For each index parameter p: addresses and remote entries of the function depend on p mod m
  /// only (m > 0), or on p itself (0). Scalars of kernels do not count.
  std::vector<int64_t> index_period;
  /// The numbers of messages, stream entries and collectives are affine in the index parameters and
  /// the counters of loops, in callees too.
  bool affine = true;
  /// For each index parameter: whether a message or collective index depends on it.
  std::vector<bool> in_numbers;
};

using FactsOfFunctions = Ids<exe::FunctionId, FunctionFacts>;

/// Computes the facts of all functions. Calls must not form a cycle (see exe::validate).
FactsOfFunctions function_facts(const exe::Executable& executable);

/// Returns whether a loop is long (exe/remote_trace.h).
bool is_long(const exe::Loop& loop, const FactsOfFunctions& facts);

/// Returns m > 0 if a loop may be left early: the addresses and remote entries of the step and its
/// body depend on the counter mod m only, the numbers in it are affine, and it has no loop with a
/// condition in it. If it moves remote entries, it must be long, because the trace of a shorter
/// loop names each iteration. Else 0.
int64_t loop_period(const exe::Loop& loop, const FactsOfFunctions& facts);

/// Returns whether an address, entry, message or sequence number of the executable depends on the
/// replica.
bool uses_replica(const exe::Executable& executable);

}  // namespace sluice::check
