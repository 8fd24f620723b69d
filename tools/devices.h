#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "tools/options.h"

namespace sluice::tool {

/// Chooses the devices of the session: as many as the stages of the model need, each with its
/// budget, kind and process. If --devices or --device-ids sets their number and --replicas is
/// absent, chooses the replicas. Without all three options, each process has at least one device.
/// Error{kUsage} unless the number of devices is that of a replica times the number of replicas.
/// Error{kUsage} if the number of budgets is wrong, for a wrong --map, and for a device that is
/// opaque in some replicas only.
void choose_devices(ToolOptions& options, bool replicas_are_given);

/// Returns the ids of devices that an option lists. Error{kUsage} for other texts, and for an id
/// that is listed twice.
std::vector<int> parse_ids(std::string_view option, const std::vector<std::string>& texts);

/// "device 0 is cpu 3, device 1 is cpu 1", with the ids of all replicas: "device 0 is cpu 3/5".
/// Empty unless --device-ids names them.
std::string device_ids_text(const ToolOptions& options);

}  // namespace sluice::tool
