#pragma once
#include <string>

#include "sluice/report/forecast.h"
#include "sluice/runtime/device.h"
#include "tools/options.h"

namespace sluice::tool {

/// What this machine does in a second, measured in less than a tenth of one; the bandwidth of remote memory as
/// --remote-bandwidth says it, where it does.
struct MachineRates {
  report::Rates rates;
  std::string
      text;  ///< "63.1 GF/s and copies of 9.80 GB/s a worker, remote memory 1.00 GB/s by --remote-bandwidth"
};

MachineRates measure_rates(const ToolOptions& options);

}  // namespace sluice::tool
