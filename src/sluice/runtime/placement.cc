#include "sluice/runtime/placement.h"

#include <algorithm>
#include <variant>

#include "sluice/base/error.h"

namespace sluice::runtime {
Placement::Placement(const exe::Executable& executable, exe::ProcessMap map, int rank)
    : executable_(executable),
      map_(std::move(map)),
      rank_(rank),
      here_(map_.replicas_of(rank)),
      stream_devices_(executable.streams.size()),
      buffer_devices_(executable.remote_buffers.size()) {
  for (const exe::Function& f : executable.functions) {
    for (const exe::Step& step : f.steps) {
      const auto* issue = std::get_if<exe::Issue>(&step.body);
      if (issue == nullptr) continue;
      exe::DeviceId& device =
          issue->is_stream() ? stream_devices_[issue->stream()] : buffer_devices_[issue->buffer()];
      SLUICE_CHECK(!device.valid() || device == f.device);
      device = f.device;
    }
  }
  // Device 0 has what no device uses.
  for (auto* const devices : {&stream_devices_.items(), &buffer_devices_.items()})
    std::replace(devices->begin(), devices->end(), exe::DeviceId(), exe::DeviceId(0));
}

int Placement::process_of(int replica, const exe::VariablePlan& variable) const {
  return process_of(replica, variable.buffer.valid() ? buffer_devices_[variable.buffer]
                                                     : executable_.arenas[variable.arena].device);
}

// Returns the bytes from the begin of a buffer to the begin of the next one in its arena.
int64_t Placement::extent(exe::BufferId buffer) const {
  const exe::RemoteBufferPlan& own = executable_.remote_buffers[buffer];
  int64_t end = executable_.arenas[own.arena].bytes;
  for (const exe::RemoteBufferPlan& b : executable_.remote_buffers) {
    if (b.arena == own.arena && b.offset > own.offset) end = std::min(end, b.offset);
  }
  return end - own.offset;
}

int64_t Placement::offset_of(int replica, exe::BufferId buffer) const {
  const exe::RemoteBufferPlan& own = executable_.remote_buffers[buffer];
  int64_t offset = own.offset;
  for (const exe::BufferId b : executable_.remote_buffers.ids()) {
    const exe::RemoteBufferPlan& other = executable_.remote_buffers[b];
    if (other.arena == own.arena && other.offset < own.offset && !has_buffer(replica, b))
      offset -= extent(b);
  }
  return offset;
}

int64_t Placement::bytes_of(int replica, exe::ArenaId arena) const {
  const exe::Arena& a = executable_.arenas[arena];
  for (const exe::Channel& c : executable_.channels) {
    if (c.arena == arena) return has(replica, c.from) ? a.bytes : 0;
  }
  for (const exe::Feed& feed : executable_.feeds) {
    for (const exe::FeedRing& ring : feed.rings) {
      if (ring.arena == arena) return has_stream(replica, ring.stream) ? a.bytes : 0;
    }
  }
  if (a.device.valid()) return has(replica, a.device) ? a.bytes : 0;
  int64_t bytes = a.bytes;
  for (const exe::BufferId b : executable_.remote_buffers.ids()) {
    if (executable_.remote_buffers[b].arena == arena && !has_buffer(replica, b)) bytes -= extent(b);
  }
  return bytes;
}

}  // namespace sluice::runtime
