#pragma once
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace sluice {

struct CompileOptions;
class Target;
namespace runtime {
class Device;
class ProcessGroup;
}  // namespace runtime

/// A device to run on: its target for compilation, its device for runs, and its limits. Functions
/// such as cpu_device() make it.
struct DeviceChoice {
  std::shared_ptr<const Target> target = {};
  std::shared_ptr<runtime::Device> device = {};
  int64_t memory = -1;  ///< Budget of device memory in bytes; -1: no budget.
  int threads = 0;      ///< Workers; 0: as many as this process has usable cores.
};

/// Returns the device of sessions whose options do not name one: the CPU without a budget. The
/// layer `devices` defines it, because this layer knows no kind of device.
DeviceChoice default_device();

/// Convert KiB, MiB and GiB to bytes: 4_MiB.
constexpr int64_t operator""_KiB(unsigned long long n) { return static_cast<int64_t>(n) << 10; }
constexpr int64_t operator""_MiB(unsigned long long n) { return static_cast<int64_t>(n) << 20; }
constexpr int64_t operator""_GiB(unsigned long long n) { return static_cast<int64_t>(n) << 30; }

/// Returns FOLDER of remote memory "file:FOLDER", or an empty string for "host". Error{kUsage} for
/// any other text.
std::string remote_folder(const std::string& remote);

struct SessionOptions {
  DeviceChoice device = default_device();       ///< Device 0.
  std::vector<DeviceChoice> more_devices = {};  ///< Devices 1 and up; they use device 0's threads.
  /// Processes that share the devices of all replicas (comm/mpi_group.h); null: this process runs
  /// them all. Each process makes the same calls on its session, with arrays of all replicas, and
  /// gets the same results.
  std::shared_ptr<runtime::ProcessGroup> group = nullptr;
  /// The process of each device: first those of replica 0, then those of replica 1, and so on.
  /// Empty: each process gets an equal part of this list, in order of ranks.
  std::vector<int> map = {};
  std::string remote = "host";  ///< Memory of remote buffers: "host" or "file:FOLDER".
  int64_t remote_memory = -1;   ///< Budget of remote memory in bytes; -1: no budget.
  /// Largest rate of transfers to and from remote memory in bytes per second, over all replicas;
  /// -1: no limit.
  int64_t remote_bandwidth = -1;
  /// Bypass the page cache of the system in file transfers (O_DIRECT).
  bool remote_direct = false;
  /// Compute checksums of entries in files, and verify them at each read.
  bool verify_remote = false;
  /// Longest time in seconds that a run waits, after a stop or an error, until devices with queues
  /// have run their commands. At most 1e6.
  double stop_deadline = 10;
  /// Longest time in seconds that a run waits for one element of a feed. Infinite: no limit.
  double feed_deadline = std::numeric_limits<double>::infinity();
  /// Events of the last run that each worker and io queue keeps, for Session::lanes(). A run of
  /// more events keeps the last ones. 0: none. At most 1e8.
  int64_t events = 0;
  /// Folder of the report that the session writes when it ends (session/profile.h). Empty: none.
  /// Unset: the folder that SLUICE_PROFILE or SLUICE_OPTIONS names.
  std::optional<std::string> profile = std::nullopt;
  int io_queues = 1;  ///< Number of io queues: 0, 1, or 3 (loads, stores, prefetches).
  std::vector<std::string> disable = {};  ///< Optional compiler passes to omit.
  std::string print_after = {};  ///< Print the result of this pass to stderr; "all": of every pass.
  bool verify = false;  ///< Verify all bodies after each compiler pass; debug builds always do.
  /// Prove the plan before it runs (kCheck), or trust it.
  enum class Proof : uint8_t { kCheck, kTrust } proof = Proof::kCheck;
};

/// Returns the number of cores that the workers of this process may use.
int usable_cores(const SessionOptions& options);

/// Converts the options of a session to options of the compiler. Error{kUsage} for a value out of
/// range, a device without target, or options that exclude each other.
CompileOptions compile_options(const SessionOptions& options);

}  // namespace sluice
