#pragma once
#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "sluice/exe/executable.h"

namespace sluice::report {

/// What a machine does in a second.
struct Rates {
  int threads = 1;       ///< Workers of the pool that runs all replicas.
  double flops = 1e11;   ///< Of one worker.
  double copies = 1e10;  ///< Bytes that one worker copies; a kernel reads and writes twice as many.
  double remote = 1e10;  ///< Bytes that remote memory moves for all replicas together.
  /// Of a kernel, all tasks.
  std::function<double(const exe::Kernel&)> flops_of = [](const exe::Kernel&) { return 0.0; };
};

/// What a run moves between devices and one other memory.
struct TransferForecast {
  std::string memory;          ///< "streams", "tier host".
  int64_t bytes = 0;           ///< Of all replicas.
  double seconds = 0;          ///< That transfers take.
  double exposed_seconds = 0;  ///< In which a device does nothing but wait for them.

  double hidden_seconds() const { return std::max(0.0, seconds - exposed_seconds); }
};

/// How long a run of a program takes.
struct ProgramForecast {
  std::string program;
  double seconds = 0;
  std::vector<TransferForecast> transfers;  ///< By memory; none that nothing moves to or from.
};

/// Walks each program with a clock for what computes, one for each io queue and one for remote
/// memory, whose bandwidth all replicas share. A kernel takes as long as its operations or its
/// operands' bytes, whichever takes longer, on as many workers as it has tasks; replicas that share
/// workers take turns at each step. A transfer on the compute queue is exposed; on an io queue it
/// goes on from its issue, or from the end of the one before, and is exposed as far as a wait
/// waits. Of a branch the slower arm counts. What it leaves out (barriers, caches, other programs
/// of the machine) makes runs slower than forecast; replicas that compute while others wait make
/// them faster.
std::vector<ProgramForecast> forecast(const exe::Executable& executable, const Rates& rates);

/// A line for each program and for each memory that it moves bytes to or from.
std::string summary(const std::vector<ProgramForecast>& programs);

}  // namespace sluice::report
