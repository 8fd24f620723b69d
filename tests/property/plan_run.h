#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "damage.h"

namespace sluice::property {

/// The bytes of every output stream and variable after all programs have run in order.
using RunBytes = std::map<std::string, std::vector<std::byte>>;

/// Runs the programs of an executable of CPUs in order, without a session. Variables and inputs
/// depend only on `seed`, which also decides the order in which strands and queues run. Errors are
/// those of the runtime.
RunBytes run_plan(const exe::Executable& executable, uint64_t seed);

/// Returns a comparison that runs plans with two seeds.
Comparison plan_runs(const exe::Executable& right);

}  // namespace sluice::property
