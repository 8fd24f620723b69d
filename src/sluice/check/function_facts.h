#pragma once
#include <cstdint>
#include <vector>

#include "sluice/exe/executable.h"

namespace sluice::check {

/// What the checker knows of a function before it runs it.
struct FunctionFacts {
  bool communicates =
      false;  ///< Sends, receives, takes part in collectives or uses streams, also through calls.
  bool transfers = false;  ///< Communicates or moves remote entries.
  /// For each index parameter p, m > 0: the addresses of the function depend on p mod m only; 0: on
  /// all of it. Scalars of kernels do not count: they are no addresses.
  std::vector<int64_t> index_period;
};

/// Facts of all functions; calls must not form a circle (see validate).
std::vector<FunctionFacts> function_facts(const exe::Executable& executable);

/// m > 0: the addresses that a loop step and its body use depend on its counter mod m only; 0: on
/// all of it.
int64_t loop_period(const exe::Loop& loop, const std::vector<FunctionFacts>& facts);

/// Some address, entry or message of the executable names the replica.
bool uses_replica(const exe::Executable& executable);

}  // namespace sluice::check
