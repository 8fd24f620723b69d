#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "sluice/runtime/device.h"

namespace sluice::runtime {

class QueuedDevice;

/// A kernel and its arguments. The call that takes one copies all of it; afterwards the caller's
/// arrays hold any values. The kernel must live until the launch has ended.
struct Launch {
  /// BoundKernel::state, or BoundCollective::state for the share of one member. The operands of a
  /// share are the inputs of all members, then the outputs of all members; its scalar is the
  /// member. All operands are in the memory of this device. An output of another member may be
  /// null.
  const void* kernel = nullptr;
  std::span<DeviceAddress> operands;
  DeviceAddress workspace;
  std::span<int64_t> scalars;
};

/// Launches that a queue has recorded, such as an instantiated CUDA graph.
class Recording {
 public:
  virtual ~Recording() = default;
};

/// A queue of commands of an asynchronous device, such as a CUDA stream. The host enqueues commands
/// and continues; the device runs them later, in their order. One thread at a time may use a queue,
/// except where a function states otherwise.
///
/// A caller may assume that
///  * a command runs after all commands that were enqueued on this queue before it, and sees what
///    they wrote;
///  * a queue continues without further calls, as far as its waits allow.
///
/// A caller may not assume that
///  * a command has begun, or ended, when its call returns. A copy may read its source, and write
///    its destination, at any time until a mark after it has passed;
///  * a call returns at once: it waits while the device has no room for another command. So a
///    command must never wait for one that is enqueued later, on any queue;
///  * a command that waits for a mark waits if that mark was not made before;
///  * an error appears at the call that caused it. It appears at that call or any later one;
///  * memory that is not pinned can be copied, or that a queue can touch the memory of a device
///    other than its own.
///
/// Every call may throw Error{kPeerLost}, or the error of an earlier command. Such an error stays:
/// all later calls throw it again, and no later command runs. All queues of the device have it. A
/// queue of another device that waits for one of them, or copies from it, fails with
/// Error{kPeerLost}.
class Queue {
 public:
  /// Upper limit of outstanding launches and copies of the compute queue. A queue with room for
  /// them, and for the marks and waits between them, never blocks the strand where it cannot see a
  /// stop.
  static constexpr int64_t kMaxOutstanding = 512;

  /// Waits until all commands have run, or have been discarded if the queue has an error.
  virtual ~Queue() = default;

  virtual void launch(const Launch& launch) = 0;
  /// From begin_recording() to end_recording(), launches are recorded instead of run. No other call
  /// is allowed between them. An error ends the recording.
  virtual void begin_recording() = 0;
  virtual std::unique_ptr<Recording> end_recording() = 0;
  /// Enqueues the launches of a recording of this queue, with the arguments that they had. Each
  /// counts as a command. The recording must live until the last of them has ended.
  virtual void replay(const Recording& recording) = 0;
  /// Copies within the memory of this device. The ranges must not overlap.
  virtual void copy(DeviceAddress to, DeviceAddress from, int64_t bytes) = 0;
  /// Copies from and to pinned memory.
  virtual void upload(DeviceAddress to, const std::byte* from, int64_t bytes) = 0;
  virtual void download(std::byte* to, DeviceAddress from, int64_t bytes) = 0;
  /// Copies from the memory of `peer`, a device of the same kind, to this device.
  virtual void copy_from(QueuedDevice& peer, DeviceAddress to, DeviceAddress from,
                         int64_t bytes) = 0;

  /// Returns a new mark after all commands so far. Marks of a queue ascend from 1. A queue may keep
  /// only its last few marks: a question about an older one is answered for a later one.
  virtual int64_t mark() = 0;
  /// Lets the commands that follow wait until `mark` of another queue of this kind has passed. The
  /// thread that uses `other` may continue meanwhile.
  virtual void wait(Queue& other, int64_t mark) = 0;
  /// Returns whether all commands before the mark have ended without an error. Does not wait.
  virtual bool passed(int64_t mark) = 0;

  /// Waits until all commands have ended. Throws if one has failed.
  virtual void drain() = 0;
  /// Throws the error of a command, if one is known.
  virtual void check() = 0;
  /// Returns the number of the command that has begun last; after an error, of the one that failed.
  /// Launches and copies count, from 1. Never throws, and any thread may call it.
  virtual int64_t begun() const = 0;
};

/// A device that runs commands of queues. One strand enqueues the steps of its programs.
class QueuedDevice : public OpenDevice {
 public:
  std::unique_ptr<Strand> strand(RunState& run, exe::DeviceId device, int worker) final;
  virtual std::unique_ptr<Queue> queue() = 0;
  /// Makes host memory known to the device, for upload() and download(). It must outlive the
  /// device.
  virtual void pin(std::span<std::byte> memory) = 0;
  /// Returns the bytes that allocate() can still return in all; -1: not known.
  virtual int64_t available_memory() const { return -1; }
};

}  // namespace sluice::runtime
