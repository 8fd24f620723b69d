#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "sluice/exe/executable.h"
#include "sluice/exe/process_map.h"

namespace sluice::runtime {

/// Where the devices of an executable run, and with them the streams, remote buffers and variables
/// that they use: in which process of a group. A stream or a remote buffer is used by one device.
class Placement {
 public:
  /// `rank` is this process. `executable` must outlive this object.
  Placement(const exe::Executable& executable, exe::ProcessMap map, int rank);

  int process_of(int replica, exe::DeviceId device) const {
    return map_.process_of(replica, device);
  }
  int process_of(int replica, const exe::VariablePlan& variable) const;
  int process_of_stream(int replica, exe::StreamId stream) const {
    return process_of(replica, stream_devices_[stream]);
  }
  /// Returns whether this process runs the device of a stream of a replica.
  bool has_stream(int replica, exe::StreamId stream) const {
    return process_of_stream(replica, stream) == rank_;
  }
  /// Returns whether this process runs a device of a replica.
  bool has(int replica, exe::DeviceId device) const { return process_of(replica, device) == rank_; }
  bool has(int replica, const exe::VariablePlan& variable) const {
    return process_of(replica, variable) == rank_;
  }
  /// Returns the replicas of which this process runs at least one device.
  const exe::ReplicaRange& here() const { return here_; }
  /// Returns the bytes of an arena of a replica that this process allocates. The slots of a channel
  /// are in the process that sends. The ring of a feed's field is in the process of its stream.
  int64_t bytes_of(int replica, exe::ArenaId arena) const;
  /// Returns the position of a remote buffer of a replica in its arena. Buffers of other processes
  /// use no memory here.
  int64_t offset_of(int replica, exe::BufferId buffer) const;

 private:
  bool has_buffer(int replica, exe::BufferId buffer) const {
    return has(replica, buffer_devices_[buffer]);
  }
  int64_t extent(exe::BufferId buffer) const;

  const exe::Executable& executable_;
  exe::ProcessMap map_;
  int rank_;
  exe::ReplicaRange here_;
  Ids<exe::StreamId, exe::DeviceId> stream_devices_;
  Ids<exe::BufferId, exe::DeviceId> buffer_devices_;
};

}  // namespace sluice::runtime
