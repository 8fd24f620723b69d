#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "sluice/exe/executable.h"
#include "sluice/report/forecast/forecast.h"
#include "sluice/report/plan_names.h"

namespace sluice::report {

inline constexpr int64_t kMaxEvents = 10000;

/// An interval of a device's queue. Times are in seconds from the begin of the run.
struct Event {
  /// In a wait, the compute queue waits for a transfer, a message or a free slot of a channel. A
  /// part is the time in which a device runs one part of a block for one micro-batch: from its
  /// first kernel to its last one before a kernel of another part or micro-batch.
  enum class Activity : uint8_t { kStep, kWait, kBlockPass };
  Activity kind = Activity::kStep;
  exe::DeviceId device{0};
  int32_t queue = 0;
  exe::FunctionId function{0};  ///< Function of the step, or of the first kernel of the part.
  int32_t step = 0;             ///< A part: the micro-batch.
  double begin = 0;
  double end = 0;
  int32_t worker = 0;  ///< Measured events of the compute queue: the worker of the device.
  int32_t part = -1;   ///< A part: its number.
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
  exe::DeviceId device{0};
  int64_t transfers = 0;  ///< Number of them in the trace.
  double hidden = 0;
  double exposed = 0;
};

/// Simulates a run of a program on devices that compute at the same time, each with its own
/// workers. Steps take the times of StepTimes. A receive waits for its message, a send for a free
/// slot, and all devices share the bandwidth of remote memory. A branch runs its first arm. The
/// simulation ends after `max` events. `parts` are the names of the parts of `names`, by number.
Trace planned_trace(const exe::Executable& executable, const exe::Program& program,
                    const Rates& rates, const PlanNames& names,
                    const std::vector<std::string>& parts, int64_t max);

/// Returns how much of its transfers a planned trace hides, by device, kind and object.
std::vector<Overlap> overlaps(const exe::Executable& executable, const Trace& trace);

}  // namespace sluice::report
