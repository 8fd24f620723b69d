#pragma once
#include <string>

#include "sluice/exe/executable.h"

namespace sluice::exe {

/// Returns a digest of the values that an executable computes, as 32 hexadecimal digits. Two
/// executables with equal fingerprints run the same ops with the same options on the same values,
/// in the same order. The digest covers
///
///   * the number of replicas;
///   * everything that a user sees of streams, remote buffers, variables and constants: names,
///     specs, directions, entries, initializers, shards, groups, data;
///   * the device, the parameters and the steps of each function: ops, options, stages, scalars,
///     values found and made with their specs, callees, index arguments, trips, carried values,
///     transfers and their entries, messages, collectives and their groups;
///   * the name of each program, the functions that it starts, and its stream, collective, remote
///     and final lines.
///
/// It does not cover how the values are computed, which the checker and the device check:
/// addresses, bytes, layouts, kernels, tasks, workspace, queues, waits, barriers, budgets and
/// arenas. It does not cover names of functions and source locations either.
std::string fingerprint(const Executable& executable);

}  // namespace sluice::exe
