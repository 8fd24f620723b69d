#include "sluice/session/options.h"

#include <string_view>

#include "sluice/base/sys.h"
#include "sluice/compiler/compile.h"
#include "sluice/runtime/pool.h"
#include "sluice/runtime/process_group.h"

namespace sluice {
namespace {

DeviceChoice (*make_default_device)() = nullptr;

constexpr double kLongestDeadline = 1e6;  // Seconds.
constexpr int64_t kMostEvents = 100'000'000;

}  // namespace

bool set_default_device(DeviceChoice (*make)()) {
  make_default_device = make;
  return true;
}

DeviceChoice default_device() {
  return make_default_device == nullptr ? DeviceChoice{} : make_default_device();
}

std::string remote_folder(const std::string& remote) {
  constexpr std::string_view kFile = "file:";
  if (remote == "host") return {};
  require(remote.starts_with(kFile) && remote.size() > kFile.size(),
          "remote memory: must be \"host\" or \"file:FOLDER\", got \"{}\"", remote);
  return remote.substr(kFile.size());
}

int usable_cores(const SessionOptions& options) {
  return options.group == nullptr ? sys::usable_cores() : options.group->usable_cores();
}

CompileOptions compile_options(const SessionOptions& options) {
  CompileOptions result;
  const int threads = options.device.threads == 0 ? usable_cores(options) : options.device.threads;
  require(threads >= 1 && threads <= runtime::Pool::kMaxWorkers,
          "session: threads must be in [1, {}], got {}", runtime::Pool::kMaxWorkers, threads);
  require(options.remote_memory >= -1,
          "session: the budget of remote memory must be at least 0 bytes, or -1 for none, got {}",
          options.remote_memory);
  result.remote_memory = options.remote_memory;
  if (options.group != nullptr) result.processes = options.group->size();
  result.map = options.map;
  const bool file = !remote_folder(options.remote).empty();
  if (file) result.remote_space = exe::Space::kFile;
  require(
      options.remote_bandwidth == -1 || options.remote_bandwidth > 0,
      "session: the rate of remote memory must be more than 0 bytes a second, or -1 for no limit, "
      "got {}",
      options.remote_bandwidth);
  require(file || (!options.remote_direct && !options.verify_remote),
          "session: direct transfers and checksums require remote memory in \"file:FOLDER\", got "
          "\"{}\"",
          options.remote);
  require(options.stop_deadline >= 0 && options.stop_deadline <= kLongestDeadline,
          "session: the deadline of a stop must be in [0, {}] seconds, got {}", kLongestDeadline,
          options.stop_deadline);
  require(options.events >= 0 && options.events <= kMostEvents,
          "session: events must be 0 to {}, got {}", kMostEvents, options.events);
  require(options.feed_deadline > 0, "session: feed_deadline must be more than 0 seconds, got {}",
          options.feed_deadline);
  result.remote_direct = options.remote_direct;
  result.verify_remote = options.verify_remote;
  result.io_queues = options.io_queues;
  result.disable = options.disable;
  result.print_after = options.print_after;
  result.verify = options.verify;
  const auto add_device = [&](const DeviceChoice& c) {
    require(c.target != nullptr && c.device != nullptr,
            "session: device {} must have a target and a device; use cpu_device()",
            result.devices.size());
    require(c.memory >= -1,
            "session: the budget of device {} must be at least 0 bytes, or -1 for none, got {}",
            result.devices.size(), c.memory);
    result.devices.push_back({c.target, c.memory, threads});
  };
  add_device(options.device);
  for (const DeviceChoice& c : options.more_devices) add_device(c);
  return result;
}

}  // namespace sluice
