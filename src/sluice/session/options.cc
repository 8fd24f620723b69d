#include "sluice/session/options.h"

#include <limits>
#include <string_view>
#include <utility>

#include "sluice/base/sys.h"
#include "sluice/compiler/compile.h"
#include "sluice/runtime/pool.h"
#include "sluice/runtime/process_group.h"
#include "sluice/session/option_table.h"

namespace sluice {
namespace {

constexpr double kMaxDeadline = 1e6;  // Seconds.
constexpr int64_t kMaxEvents = 100'000'000;

TextForm<int64_t> budgets() { return forms::or_word<int64_t>("none", -1, forms::bytes(), "-1"); }

OptionTable<DeviceChoice> device_table() {
  OptionTable<DeviceChoice> t;
  t.add("memory", &DeviceChoice::memory, budgets(), "Limit device memory to BYTES");
  t.add("threads", &DeviceChoice::threads, forms::integers<int>(0, runtime::Pool::kMaxWorkers),
        "Compute with N threads; 0 for all usable cores");
  return t;
}

OptionTable<SessionOptions> make_session_table() {
  using S = SessionOptions;
  const Requirement<S> file{"{remote} file:DIR",
                            [](const S& o) { return o.remote.starts_with("file:"); }};
  const forms::Interval positive{.excludes_min = true};
  OptionTable<S> t;
  t.add_members("device", &S::device, device_table());
  t.add("remote", &S::remote, forms::texts("PLACE"),
        "Keep offloaded tensors in PLACE: host or file:DIR");
  t.add("remote_memory", &S::remote_memory, budgets(), "Limit remote memory to BYTES");
  t.add("remote_bandwidth", &S::remote_bandwidth,
        forms::or_word<int64_t>("none", -1, forms::bytes(1), "-1"),
        "Limit transfers to and from remote memory to BYTES a second");
  t.add("remote_direct", &S::remote_direct, forms::flags(), "Bypass the page cache").require(file);
  t.add("verify_remote", &S::verify_remote, forms::flags(),
        "Verify checksums of bytes that are read")
      .require(file);
  t.add("stop_deadline", &S::stop_deadline, forms::reals({.max = kMaxDeadline}, "SECONDS"),
        "Wait up to SECONDS for the queues of devices after a stop or an error");
  t.add("feed_deadline", &S::feed_deadline,
        forms::or_word("inf", std::numeric_limits<double>::infinity(),
                       forms::reals(positive, "SECONDS")),
        "Wait up to SECONDS for an element of a feed");
  t.add("events", &S::events, forms::integers<int64_t>(0, kMaxEvents),
        "Record the last N events of each worker and I/O queue in a run");
  t.add("profile", &S::profile, forms::texts("DIR"), "Write a report to DIR at the end");
  t.add("io_queues", &S::io_queues, forms::words<int>({{"0", 0}, {"1", 1}, {"3", 3}}),
        "Run transfers on N queues; 3 for loads, stores and prefetches")
      .type = OptionType::kInteger;
  t.add_list("disable", &S::disable, "PASS",
             "Omit this optional compiler pass (see sluice plan --passes)");
  t.add("print_after", &S::print_after, forms::texts("PASS"),
        "Print the program after this pass to stderr, or after all");
  t.add("verify", &S::verify, forms::flags(), "Verify the program after every compiler pass");
  t.add("proof", &S::proof,
        forms::words<S::Proof>({{"check", S::Proof::kCheck}, {"trust", S::Proof::kTrust}}),
        "Prove the plan before it runs (check), or trust it");
  return t;
}

}  // namespace

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

const OptionTable<SessionOptions>& session_table() {
  static const OptionTable<SessionOptions> table = make_session_table();
  return table;
}

CompileOptions compile_options(const SessionOptions& options) {
  CompileOptions result;
  try {
    session_table().check(options);
  } catch (const Error& e) {
    fail(e.kind(), "session: {}", e.what());
  }
  const int threads = options.device.threads == 0 ? usable_cores(options) : options.device.threads;
  result.remote_memory = options.remote_memory;
  if (options.group != nullptr) result.processes = options.group->size();
  result.map = options.map;
  const bool file = !remote_folder(options.remote).empty();
  if (file) result.remote_space = exe::Space::kFile;
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
