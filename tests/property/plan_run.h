#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "sluice/exe/executable.h"

namespace sluice::property {

/// The bytes of every output stream and variable after all programs have run, in their order.
using RunBytes = std::map<std::string, std::vector<std::byte>>;

/// Runs the programs of an executable of CPUs, as it is, without a session: its constants,
/// variables and inputs that depend on `seed` alone. Strands and queues take turns as `seed` says.
/// Errors are those of the runtime.
RunBytes run_plan(const exe::Executable& executable, uint64_t seed);

}  // namespace sluice::property
