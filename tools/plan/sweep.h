#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tools/options.h"

namespace CLI {
class App;
}

namespace sluice::tool {

/// Figures of a plan, for all replicas. Bytes moved are those of a training step.
struct SweepFigures {
  int64_t device_bytes = 0;      ///< Maximum bytes that a device needs.
  int64_t tier_bytes = 0;        ///< Bytes in all tiers.
  int64_t remote_bytes = 0;      ///< Bytes to and from remote memory.
  int64_t collective_bytes = 0;  ///< Bytes that replicas send each other.
  int64_t message_bytes = 0;     ///< Bytes between devices.
  int64_t state_bytes = 0;  ///< Bytes of weights and their state that an update moves, by replica.
  double seconds = 0;       ///< Forecast of a step.
};

/// Returns the figures of the plan for options. Error{kDoesNotFit}, Error{kUsage} like run_plan().
SweepFigures figures_of(const ToolOptions& options);

/// Prints a row for each combination of the values of --sweep, with a star if no other plan needs
/// both fewer bytes of a device and fewer seconds. `command` is the command that was parsed from
/// `words`; `plan` plans a command line. Returns 0 if a combination has a plan. Otherwise returns
/// the exit code of a combination that does not fit, or else that of a refused combination.
/// Error{kUsage} for flags that the command does not have or that cannot be swept.
int run_sweep(const CLI::App& command, const ToolOptions& options,
              const std::vector<std::string>& words,
              const std::function<SweepFigures(const std::vector<std::string>&)>& plan);

}  // namespace sluice::tool
