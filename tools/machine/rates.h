#pragma once
#include <string>

#include "sluice/report/forecast/forecast.h"
#include "sluice/runtime/device.h"
#include "tools/options.h"

namespace sluice::tool {

/// The rates of a machine: those of --machine, or those of this machine, measured within a tenth of
/// a second. --remote-bandwidth, if given, is the bandwidth of remote memory.
struct MachineRates {
  report::Rates rates;
  /// "63.1 GF/s and copies of 9.80 GB/s a worker, remote memory 1.00 GB/s by --remote-bandwidth".
  std::string text;
};

MachineRates measure_rates(const ToolOptions& options);

}  // namespace sluice::tool
