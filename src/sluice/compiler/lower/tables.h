#pragma once
#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sluice/compiler/program.h"

namespace sluice::compiler {

/// Fills the tables of an executable to which its functions refer.
class Tables {
 public:
  /// Adds devices, arenas, streams, tiers, remote buffers, groups, variables and channels.
  /// Error{kUsage} if the processes cannot share the devices according to the options.
  Tables(Program& program, const Context& context);

  exe::Address variable(int32_t index) const;
  exe::ValueId variable_value(int32_t index) const;
  /// The address of a constant on a device. Reserves its bytes on first use.
  exe::Address constant(int32_t index, int32_t device);
  exe::ValueId constant_value(int32_t index, int32_t device);
  exe::ValueId add_value(const std::string& tensor, int64_t version, int32_t provenance = -1);
  /// The first of consecutive rows of the table with these provenances, which are added on first
  /// use.
  int32_t row_of(std::span<const SharedProvenance> provenances);
  int32_t row_of(const SharedProvenance& provenance) { return row_of({&provenance, 1}); }
  /// Sets the number of a value that is sent or received (exe::Value::message).
  void set_message(exe::ValueId value, int32_t message);
  /// The address of the frames of a device's entry functions.
  exe::Address frames(int32_t device) const;
  /// Enlarges the arena of frames to `bytes`, or the workspace of each worker to `bytes`, if
  /// needed.
  void reserve_frame(int32_t device, int64_t bytes);
  void reserve_workspace(int32_t device, int64_t bytes);
  /// Enlarges the staging memory of a queue for a transfer of `bytes`, if needed. Does nothing for
  /// a device that is not queued.
  void reserve_staging(int32_t device, int32_t queue, int64_t bytes);

 private:
  // Indices of a device's arenas in Executable::arenas.
  struct DeviceArenas {
    int32_t persistent = 0;
    int32_t frames = 0;
    int32_t workspace = 0;
    int32_t staging = -1;  // First staging arena of its queues; -1: not queued.
  };

  void add_devices();
  void add_streams();
  void add_feeds();
  void add_remote_buffers();
  void add_host_tier();
  void add_file_memory();
  void add_variables();
  void add_channels();
  int32_t add_arena(const std::string& name, exe::ArenaKind kind, exe::Space space, int32_t device,
                    int64_t bytes = 0);
  int32_t group_index(const std::optional<ReplicaGrouping>& grouping);
  int64_t reserve(int32_t arena, int64_t bytes);
  exe::Arena& arena(int32_t index) { return exe_.arenas[static_cast<size_t>(index)]; }
  const exe::ConstantPlan& constant_plan(int32_t index, int32_t device);

  Program& program_;
  const Context& context_;
  exe::Executable& exe_;
  std::vector<DeviceArenas> arenas_;
  std::map<std::pair<int32_t, int32_t>, int32_t> constants_;  // Indexed by constant and device.
  std::unordered_map<std::string, int32_t> provenances_;      // Row by the bytes of all fields.
};

/// Returns the queues of a device, compute first. Error{kUsage} unless `io_queues` is 0, 1 or 3.
std::vector<exe::Queue> queue_names(int io_queues);

}  // namespace sluice::compiler
