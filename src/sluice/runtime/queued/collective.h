#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "sluice/runtime/queued/commands.h"
#include "sluice/runtime/strand.h"

namespace sluice::runtime {

/// The collectives of one member of QueueMeetings, one at a time, on its compute queue.
class QueuedCollective {
 public:
  /// `device` is the index of `open` in the executable. `workspace` is the begin of its workspace.
  QueuedCollective(const RunState& run, exe::DeviceId device, QueuedDevice& open,
                   Commands& commands, DeviceAddress workspace);

  /// Forgets the collective of a run that was stopped.
  void restart() { arrived_.reset(); }
  /// Continues collective `number` of the step's group; returns whether all its commands are
  /// enqueued. Until then it waits for peers, and the caller calls again with the same arguments.
  bool advance(const BoundCollective& bound, DeviceAddress input, DeviceAddress output,
               int64_t number, const exe::Step* step);

 private:
  /// The step of one member, as commands see it.
  struct Share {
    const BoundCollective& bound;
    QueueMeeting& meeting;
    int32_t member;
    const exe::Step* step;
  };

  void run(const Share& share);
  void take_outputs(const Share& share);
  void copy(const Share& share, int32_t peer, DeviceAddress to, DeviceAddress from, int64_t bytes);
  void wait_for(const Share& share, int32_t peer, QueueMeeting::Stage stage);
  void wait_for_peers(const Share& share, QueueMeeting::Stage stage);

  const RunState& run_;
  exe::DeviceId device_;
  QueuedDevice& open_;
  Commands& commands_;
  DeviceAddress workspace_;
  std::vector<DeviceAddress> operands_;  ///< Operands of a launch: all inputs, then all outputs.
  std::optional<QueueMeeting::Stage> arrived_;  ///< Last stage of the current collective.
};

}  // namespace sluice::runtime
