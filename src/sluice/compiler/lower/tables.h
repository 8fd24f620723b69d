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

  exe::Address variable(exe::VariableId index) const;
  exe::ValueId variable_value(exe::VariableId index) const;
  /// The address of a constant on a device. Reserves its bytes on first use.
  exe::Address constant(ConstantIndex index, exe::DeviceId device);
  exe::ValueId constant_value(ConstantIndex index, exe::DeviceId device);
  exe::ValueId add_value(const std::string& tensor, int64_t version, int32_t provenance = -1);
  /// The first of consecutive rows of the table with these provenances, which are added on first
  /// use.
  int32_t row_of(std::span<const SharedProvenance> provenances);
  int32_t row_of(const SharedProvenance& provenance) { return row_of({&provenance, 1}); }
  /// Sets the number of a value that is sent or received (exe::Value::message).
  void set_message(exe::ValueId value, int32_t message);
  /// The address of the frames of a device's entry functions.
  exe::Address frames(exe::DeviceId device) const;
  /// Enlarges the arena of frames to `bytes`, or the workspace of each worker to `bytes`, if
  /// needed.
  void reserve_frame(exe::DeviceId device, int64_t bytes);
  void reserve_workspace(exe::DeviceId device, int64_t bytes);
  /// Enlarges the staging memory of a queue for a transfer of `bytes`, if needed. Does nothing for
  /// a device that is not queued.
  void reserve_staging(exe::DeviceId device, int32_t queue, int64_t bytes);

 private:
  // Indices of a device's arenas in Executable::arenas.
  struct DeviceArenas {
    exe::ArenaId persistent;
    exe::ArenaId frames;
    exe::ArenaId workspace;
    exe::ArenaId staging;  // First staging arena of its queues; invalid: not queued.
  };

  void add_devices();
  void add_streams();
  void add_feeds();
  void add_remote_buffers();
  void add_host_tier();
  void add_file_memory();
  void add_variables();
  void add_channels();
  exe::ArenaId add_arena(const std::string& name, exe::ArenaKind kind, exe::Space space,
                         exe::DeviceId device, int64_t bytes = 0);
  exe::GroupId group_index(const std::optional<ReplicaGrouping>& grouping);
  int64_t reserve(exe::ArenaId arena, int64_t bytes);
  exe::Arena& arena(exe::ArenaId index) { return exe_.arenas[index]; }
  const exe::ConstantPlan& constant_plan(ConstantIndex index, exe::DeviceId device);

  Program& program_;
  const Context& context_;
  exe::Executable& exe_;
  Ids<exe::DeviceId, DeviceArenas> arenas_;
  /// Keyed by constant of the program and device.
  std::map<std::pair<ConstantIndex, exe::DeviceId>, exe::ConstantId> constants_;
  std::unordered_map<std::string, int32_t> provenances_;  // Row by the bytes of all fields.
};

/// Returns the queues of a device, compute first. Error{kUsage} unless `io_queues` is 0, 1 or 3.
std::vector<exe::Queue> queue_names(int io_queues);

}  // namespace sluice::compiler
