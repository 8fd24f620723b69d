#pragma once
#include <string>

#include "sluice/train/options.h"
#include "tools/machine/rates.h"
#include "tools/options.h"

namespace sluice::tool {

/// Measures the rates of this machine within a few seconds: kernels at several intensities, copies
/// in caches and in memory, messages between threads. Writes them to `path` and returns lines that
/// say what was measured. Error{kIo}, before it measures, if the file cannot be written.
std::string measure_machine(const std::string& path);

/// Returns the rates of the file --machine. Other flags take precedence: --threads and
/// --remote-bandwidth.
MachineRates rates_of_machine(const ToolOptions& options);

/// Returns the rates by which stages are balanced, from the rates of a machine.
train::DeviceRates device_rates(const report::Rates& rates);

}  // namespace sluice::tool
