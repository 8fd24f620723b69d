#pragma once
#include <cstdint>
#include <vector>

#include "sluice/exe/executable.h"
#include "sluice/report/forecast/forecast.h"

namespace sluice::report {

inline constexpr int64_t kMostEvents = 10000;

/// An interval of a device's queue. Times are in seconds from the begin of the run.
struct Event {
  /// A wait is of the compute queue: for a transfer, a message or a free slot of a channel. A part
  /// is a call of a function that runs one part of a block (Places::part_of_function()).
  enum class Kind : uint8_t { kStep, kWait, kPart };
  Kind kind = Kind::kStep;
  int32_t device = 0;
  int32_t queue = 0;
  int32_t function = 0;  ///< Function of the step. A part: the callee.
  int32_t step = 0;      ///< A part: number of times that the device ran it before.
  double begin = 0;
  double end = 0;
  int32_t worker = 0;  ///< Measured events of the compute queue: the worker of the device.
};

/// The planned execution of one run of a program.
struct Trace {
  std::vector<Event> events;  ///< In the order of their ends on each queue.
  double seconds = 0;         ///< End of the last event.
  bool complete = true;       ///< Whether it has all events of the run.
};

/// Seconds of the transfers of a trace between a device and one stream or remote buffer, in one
/// direction. A transfer is hidden while its device runs a kernel or a collective, else exposed.
struct Overlap {
  exe::TransferKind kind = exe::TransferKind::kStreamIn;
  int32_t object = 0;  ///< Index into streams or remote buffers.
  int32_t device = 0;
  int64_t transfers = 0;  ///< Number of them in the trace.
  double hidden = 0;
  double exposed = 0;
};

/// Simulates a run of a program on devices that compute beside each other, each with its own
/// workers. Steps take the times of StepTimes. A receive waits for its message, a send for a free
/// slot, and all devices share the bandwidth of remote memory. A branch runs its first arm. Ends
/// after `most` events. `parts` has a number for each function that runs one part of a block, equal
/// for equal parts, and -1 for others.
Trace planned_trace(const exe::Executable& executable, const exe::Program& program,
                    const Rates& rates, const std::vector<int32_t>& parts, int64_t most);

/// Returns how much of its transfers a planned trace hides, by device, kind and object.
std::vector<Overlap> overlaps(const exe::Executable& executable, const Trace& trace);

}  // namespace sluice::report
