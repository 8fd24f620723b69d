#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace sluice {

struct CompileOptions;
class Target;
namespace runtime {
class Device;
class ProcessGroup;
}  // namespace runtime

/// A device to run on: the two sides of its kind, and its limits. Functions like cpu_device() make it (devices/).
struct DeviceChoice {
  std::shared_ptr<const Target> target;
  std::shared_ptr<runtime::Device> device;
  int64_t memory = -1;  ///< Budget in bytes; -1: none.
  int threads = 0;      ///< Workers; 0: as many as this process has usable cores.
};

/// Sets the device of sessions whose options name none; returns true. A program that includes devices/cpu_device.h has
/// the CPU as that device.
bool set_default_device(DeviceChoice (*make)());
/// The device that was set; without a target if none was.
DeviceChoice default_device();

/// KiB, MiB and GiB in bytes: 4_MiB.
constexpr int64_t operator""_KiB(unsigned long long n) { return static_cast<int64_t>(n) << 10; }
constexpr int64_t operator""_MiB(unsigned long long n) { return static_cast<int64_t>(n) << 20; }
constexpr int64_t operator""_GiB(unsigned long long n) { return static_cast<int64_t>(n) << 30; }

/// The folder of remote memory in "file:FOLDER"; empty for "host". Error{kUsage} for anything else.
std::string remote_folder(const std::string& remote);

struct SessionOptions {
  DeviceChoice device = default_device();       ///< Device 0.
  std::vector<DeviceChoice> more_devices = {};  ///< Devices 1 and up, with device 0's threads.
  /// The processes that share the replicas evenly (comm/mpi_group.h); null: this one runs all. Each makes the same calls on
  /// its session, with arrays of all replicas, and gets the same results.
  std::shared_ptr<runtime::ProcessGroup> group = nullptr;
  std::string remote = "host";  ///< Where remote buffers lie: "host", or "file:FOLDER".
  int64_t remote_memory = -1;   ///< Budget of that tier in bytes; -1: none.
  /// Bytes a second that programs move there and back at most, all replicas together; -1: as many as go.
  int64_t remote_bandwidth = -1;
  bool remote_direct = false;  ///< Files go past the system's page cache (O_DIRECT).
  bool verify_remote = false;  ///< Checksums of what files hold, checked whenever it is read.
  int io_queues = 1;  ///< For transfers beside the work: 0, 1, or 3 (loads, stores, prefetches).
  std::vector<std::string> disable = {};  ///< Optional compiler passes to leave out.
  std::string print_after = {};           ///< A pass whose result goes to stderr, or "all".
  bool verify = false;  ///< Verify all bodies after every compiler pass; debug builds always do.
  enum class Proof : uint8_t {
    kCheck,
    kTrust
  } proof = Proof::kCheck;  ///< Whether the plan is proved before it runs.
};

/// Cores that the workers of this process may use.
int usable_cores(const SessionOptions& options);

/// The compiler's options for a session. Error{kUsage} for options that make no session.
CompileOptions compile_options(const SessionOptions& options);

}  // namespace sluice
