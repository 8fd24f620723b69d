#pragma once
#include <string>

#include "sluice/exe/executable.h"

namespace sluice::exe {

/// Digest of the values that an executable computes, 32 hexadecimal digits. Two executables with
/// equal fingerprints run the same ops with the same options on the same values, in the same order.
/// It covers
///
///   * the number of replicas, and of streams, remote buffers, variables and constants all that a
///     user sees: names, specs, directions, entries, initializers, shards, groups, data;
///   * of each function the device, the parameters and the steps: ops, options, stages, scalars,
///     values found and made with their specs, callees, index arguments, trips, carried values,
///     transfers and their entries, messages, collectives and their groups;
///   * of each program the name, the functions that it enters and all that it announces.
///
/// It leaves out how the values are computed, which the checker and the device judge: addresses,
/// bytes, layouts, kernels, tasks, workspace, queues, waits, barriers, budgets, arenas, and names
/// of functions and places that only people read.
std::string fingerprint(const Executable& executable);

}  // namespace sluice::exe
