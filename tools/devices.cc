#include "tools/devices.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "sluice/base/options/option.h"
#include "sluice/base/options/words.h"
#include "sluice/devices/opaque_device.h"
#include "sluice/exe/process_map.h"
#include "sluice/runtime/device.h"
#include "sluice/train/pipeline/stages.h"
#include "tools/programs.h"

namespace sluice::tool {
namespace {

// The processes of the devices of all replicas (exe::ProcessMap).
std::vector<int> process_map(const ToolOptions& o, int devices, int processes) {
  if (o.map == std::vector<std::string>{"devices"})
    return exe::ProcessMap::devices_first(o.step.replicas, devices, processes);
  std::vector<int> map;
  for (const std::string& text : o.map)
    map.push_back(parse_value("--map", forms::integers(0, processes - 1), text));
  return map;
}

DeviceChoice& device_of(SessionOptions& session, size_t d) {
  return d == 0 ? session.device : session.more_devices[d - 1];
}

// Ids of the devices of all replicas, replica by replica.
std::vector<int> ids_of(const ToolOptions& o, size_t devices) {
  if (!o.device_ids.empty()) return parse_ids("--device-ids", o.device_ids);
  std::vector<int> ids(devices * static_cast<size_t>(o.step.replicas));
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

// Replaces CPUs by opaque test devices where --opaque says so.
void place_opaque(ToolOptions& o) {
  if (o.opaque.empty()) return;
  const size_t devices = o.step.session.more_devices.size() + 1;
  const std::vector<int> ids = ids_of(o, devices);
  const std::vector<int> chosen =
      o.opaque == "all" ? ids : parse_ids("--opaque", split_list("--opaque", o.opaque));
  const auto has = [](const std::vector<int>& list, int id) {
    return std::find(list.begin(), list.end(), id) != list.end();
  };
  for (const int id : chosen)
    require(has(ids, id), "--opaque: must be some of the devices {}, got {}", fmt::join(ids, ", "),
            id);
  const DeviceChoice opaque = make_opaque_device();
  for (size_t i = 0; i < ids.size(); ++i) {
    const int first = ids[i % devices];
    require(has(chosen, ids[i]) == has(chosen, first),
            "--opaque: must have all or none of a device's ids in the replicas, got one of {} and "
            "{}",
            first, ids[i]);
    if (i >= devices || !has(chosen, first)) continue;
    DeviceChoice& choice = device_of(o.step.session, i);
    choice.target = opaque.target;
    choice.device = opaque.device;
  }
}

}  // namespace

std::vector<int> parse_ids(std::string_view option, const std::vector<std::string>& texts) {
  std::vector<int> ids;
  for (const std::string& text : texts) {
    ids.push_back(parse_value(option, forms::integers(0, train::kMaxDevices - 1), text));
    require(std::count(ids.begin(), ids.end(), ids.back()) == 1,
            "{}: must have each device once, got {} twice", option, ids.back());
  }
  return ids;
}

void choose_devices(ToolOptions& o, bool replicas_are_given) {
  const bool named = !o.device_ids.empty();
  const char* const option = named ? "--device-ids" : "--devices";
  if (named) o.devices = std::ssize(parse_ids(option, o.device_ids));
  const int64_t needed = devices_of_replica(o);
  const int processes = o.step.session.group == nullptr ? 1 : o.step.session.group->size();
  if (!o.devices && !replicas_are_given)
    o.step.replicas = std::max(o.step.replicas, static_cast<int>(processes / needed));
  if (o.devices && !replicas_are_given) {
    require(*o.devices % needed == 0,
            "{}: must be a multiple of the {} devices of a replica, got {}", option, needed,
            *o.devices);
    const int64_t replicas = *o.devices / needed;
    require(replicas <= kMaxReplicas, "replicas: must be at most {}, got {}", kMaxReplicas,
            replicas);
    o.step.replicas = static_cast<int>(replicas);
  }
  const int64_t all = needed * o.step.replicas;
  require(!o.devices || *o.devices == all, "{}: must be {} ({} of a replica, {} replicas), got {}",
          option, all, needed, o.step.replicas, o.devices.value_or(0));
  require(o.memory.size() <= 1 || static_cast<int64_t>(o.memory.size()) == needed,
          "--memory: must have one limit{}, got {}",
          needed == 1 ? "" : fmt::format(" or {}, one for each device of a replica", needed),
          o.memory.size());
  o.step.session.more_devices.assign(static_cast<size_t>(needed) - 1, o.step.session.device);
  for (size_t d = 1; d < o.memory.size(); ++d)
    o.step.session.more_devices[d - 1].memory = o.memory[d];
  o.step.session.map = process_map(o, static_cast<int>(needed), processes);
  place_opaque(o);
}

std::string device_ids_text(const ToolOptions& o) {
  const size_t devices = o.step.session.more_devices.size() + 1;
  std::vector<std::string> texts;
  for (size_t d = 0; d < devices && d < o.device_ids.size(); ++d) {
    const DeviceChoice& choice =
        d == 0 ? o.step.session.device : o.step.session.more_devices[d - 1];
    std::vector<std::string> ids;  // By replica.
    for (size_t i = d; i < o.device_ids.size(); i += devices) ids.push_back(o.device_ids[i]);
    texts.push_back(
        fmt::format("device {} is {} {}", d, choice.device->kind(), fmt::join(ids, "/")));
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

}  // namespace sluice::tool
