#pragma once
#include "damage.h"

namespace sluice::property {

/// Returns a comparison of any plan with a right one. It runs a plan on real bytes without real
/// kernels: each task writes a hash of the bytes that it reads. The results are the entries of
/// output streams, variables and remote buffers. A run uses only addresses, tasks, barriers,
/// transfers and messages, never the names of values. It therefore shows how damage to a plan
/// changes results, and shares nothing with the checker. One replica runs: its output of a
/// collective is a hash of its input, the group and the sequence number. For plans of a few MiB.
///
/// Each program runs as the first replica with one seed and as the last replica with another, in
/// every order in which the workers, queues and devices of a machine may run.
Comparison dry_runs(const exe::Executable& right);

}  // namespace sluice::property
