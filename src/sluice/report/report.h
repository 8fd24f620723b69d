#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "sluice/report/forecast/forecast.h"
#include "sluice/report/plan_report.h"
#include "sluice/report/remote_access.h"
#include "sluice/report/summary.h"
#include "sluice/report/trace.h"
#include "sluice/report/traffic.h"

// The data of a report. docs/report_schema.md describes its JSON form.

namespace sluice::report {

/// Version of the schema. Increase it with each change that a reader of the file must know.
inline constexpr int kReportVersion = 1;

/// Bytes of one memory, as a timeline shows them. `always_live + peak_live + gaps` is `planned`.
struct MemoryBytes {
  std::string name;          ///< "device 0 (cpu)", "tier host".
  exe::DeviceId device;      ///< Device; invalid for a tier.
  int64_t budget = -1;       ///< -1: none.
  int64_t planned = 0;       ///< All arenas: the planned peak.
  int64_t always_live = 0;   ///< Objects outside frames: they exist for the life of the program.
  int64_t peak_live = 0;     ///< Maximum number of bytes of buffers that are live at one step.
  int64_t gaps = 0;          ///< Padding, and frame bytes that no buffer uses at the peak.
  int64_t program = 0;       ///< Bytes of the device's functions, on the host; not in `planned`.
  std::string peak_program;  ///< The program with the most live bytes; empty without frames.
  std::vector<KindBytes> kinds;  ///< At the peak, largest first. Their sum is `planned`.
};

/// One arena. Only the bytes of a frames arena change from step to step.
struct ArenaBytes {
  std::string name;
  std::string kind;   ///< "persistent", "frames", …
  std::string space;  ///< "device", "pinned", "host" or "file".
  exe::DeviceId device;
  int64_t bytes = 0;
};

/// Bytes that an arena holds for the life of the program, in one replica.
struct HeldObject {
  std::string name;        ///< In the plan.
  std::string model_name;  ///< In the model's own words: "fc.1.weight, first_order".
  std::string kind;        ///< As in KindBytes.
  exe::ArenaId arena{0};
  int64_t offset = 0;
  int64_t bytes = 0;
};

/// A buffer of a function's frame, live in steps [begin, end).
struct LiveBuffer {
  std::string name;
  std::string model_name;
  std::string kind;
  int64_t offset = 0;
  int64_t bytes = 0;
  int64_t begin = 0;
  int64_t end = 0;
};

/// A step of a function.
struct StepReport {
  std::string kind;        ///< "kernel", "call", "loop", "branch", "stream_in", "send", …
  std::string name;        ///< Op, callee, stream, remote buffer or channel.
  std::string kernel;      ///< Kernels: name on the device, "cpu.gemm".
  std::string where;       ///< Module path and source line of the op.
  int64_t live_bytes = 0;  ///< Bytes of this frame's live buffers, without frames of callees.
  int64_t flops = 0;       ///< Kernels: floating-point operations.
  /// Kernels: bytes read and written. Collectives: bytes of operands, as in CollectiveBytes.
  /// Others: bytes moved.
  int64_t bytes = 0;
  int32_t queue = 0;  ///< Transfers and waits.
  /// Functions that the step calls; of a branch, one of two runs.
  std::vector<exe::FunctionId> calls;
  int64_t trips = 1;   ///< Times that a loop calls its body.
  double seconds = 0;  ///< Forecast; 0 for calls and waits.
  /// Indices into Report::parts: one for each iteration of a loop over equal blocks, else one for
  /// the whole step. Empty for a step of several blocks and for a step without a block.
  std::vector<int32_t> parts;
};

/// A function. Its timeline is written once and holds for all calls.
struct FunctionTimeline {
  std::string name;
  std::string model_name;  ///< PlanNames::of_function().
  std::string part;        ///< PlanNames::part_of_function(): "fc.1 bwd".
  exe::DeviceId device{0};
  int64_t frame_bytes = 0;
  int64_t peak_bytes = 0;     ///< Maximum number of live bytes at a step, callees included.
  int64_t program_bytes = 0;  ///< Bytes of its steps on the host.
  std::vector<LiveBuffer> buffers;
  std::vector<StepReport> steps;
};

/// A kernel in a run of a program in one replica. Times are in seconds, of all its runs.
struct KernelTime {
  exe::FunctionId function{0};
  int32_t step = 0;
  int64_t runs = 1;  ///< Times that it runs. Both arms of a branch count.
  double forecast = 0;
  double measured = -1;  ///< -1: not measured.
};

/// Times of a device in a run of a program in one replica, in seconds. -1: not measured.
struct DeviceTimes {
  exe::DeviceId device{0};
  int64_t kernels = 0;    ///< Runs of kernels.
  double forecast = 0;    ///< All kernels.
  double measured = -1;   ///< All kernels.
  double reference = 0;   ///< Reference kernels: as measured, or else as forecast.
  double waits = -1;      ///< Waits of its workers, as a mean.
  double transfers = -1;  ///< Transfers.
  double exposed = -1;    ///< Transfers while no kernel and no collective runs.
};

/// The work of one run of a program in one replica.
struct ProgramReport {
  std::string name;
  std::vector<std::pair<exe::DeviceId, exe::FunctionId>> starts;  ///< Device and function.
  double seconds = 0;                                             ///< Forecast.
  Work work;
  std::vector<Traffic> transfers;
  std::vector<Messages> messages;
  std::vector<CollectiveBytes> collectives;
  std::vector<TransferForecast> forecasts;
  RemoteAccesses accesses;
  std::vector<Overlap> overlaps;  ///< Transfers of `trace`.
  Trace trace;
  std::vector<KernelTime> kernels;  ///< The slowest first.
  Ids<exe::DeviceId, DeviceTimes> devices;
  int64_t measured_runs = 0;     ///< Runs that were measured.
  double measured_seconds = -1;  ///< The shortest of them; -1: none, or events were lost.
};

/// Number of times that a transfer, a message or a collective ran in a run of one replica.
struct StepRuns {
  exe::FunctionId function{0};
  int32_t step = 0;
  int64_t runs = 0;
};

/// Mean time of one execution of a step.
struct StepTime {
  exe::FunctionId function{0};
  int32_t step = 0;
  double seconds = 0;
};

/// Times of a device in a run, as in DeviceTimes.
struct DeviceWaits {
  exe::DeviceId device{0};
  double waits = 0;
  double transfers = 0;
  double exposed = 0;
};

/// The measured execution of a run in one replica: steps and waits of each worker and I/O queue. If
/// several runs were measured, counts and events are those of the last one, and each time is the
/// minimum of all (measured_times.h).
struct MeasuredRun {
  std::string program;
  int32_t replica = 0;
  std::vector<StepRuns> moves;  ///< Counted, also where events were lost.
  int64_t lost = 0;             ///< Earlier events that did not fit into the memory for events.
  Trace trace;                  ///< Complete if no event was lost.
  int64_t runs = 1;             ///< Runs that were measured.
  double seconds = -1;          ///< Time of a run; -1 if events were lost.
  std::vector<StepTime> steps = {};
  Ids<exe::DeviceId, DeviceWaits> devices = {};  ///< Empty if events were lost.
};

/// A stage of a pipelined or sharded step. Times are for one micro-batch.
struct StageReport {
  std::string blocks;  ///< "B1+B2".
  exe::DeviceId device{0};
  double forward_seconds = 0;
  double backward_seconds = 0;
  double message_seconds = 0;
  int64_t in_flight = 1;
  int64_t activation_bytes = 0;  ///< Bytes kept for each micro-batch in flight.
  int64_t parameters = 0;        ///< Elements of its weights.
};

/// Task of a schedule: micro-batch i runs in slot `slot + i * period`.
struct ScheduledTask {
  int32_t stage = 0;
  bool backward = false;
  int64_t slot = 0;
};

/// The stages of a step and their order. The times follow from fixed rates.
struct Pipeline {
  std::string schedule;
  int64_t micro_batches = 1;
  int64_t period = 1;
  int64_t slots = 0;
  int64_t ramp_slots = 0;  ///< Slots of the ramp-up, and as many of the ramp-down.
  double seconds = 0;
  double bubble = 0;     ///< Mean share of `seconds` in which a device with a stage waits.
  double imbalance = 1;  ///< Time of the slowest stage as a multiple of the mean.
  int32_t slowest = 0;   ///< Index of that stage.
  std::vector<StageReport> stages;
  std::vector<ScheduledTask> tasks;
};

/// An option that was given.
struct ChosenOption {
  std::string name;
  std::string value;
  std::string otherwise;  ///< Its default; empty if that depends on other options.
};

/// Everything that a report shows. make_report() computes it from an executable; its caller adds
/// the facts in the first group.
struct Report {
  std::string model;
  std::vector<ChosenOption> options;
  std::string machine;             ///< The rates of the forecasts.
  std::string refusal;             ///< The error of a plan that does not fit; else empty.
  std::vector<Pipeline> pipeline;  ///< One of a staged step, else none.
  std::vector<Suggestion> suggestions;
  std::vector<MeasuredRun> measured;    ///< Indexed by replica; empty until add_measured() sets it.
  int64_t event_bytes = 0;              ///< Host memory that holds measured events.
  std::vector<KindBytes> host_buffers;  ///< As PlanReport::host_buffers.
  std::vector<FeedReport> feeds;        ///< Session::feed_statistics(), or empty.

  int32_t replicas = 1;
  Rates rates;
  Ids<exe::DeviceId, exe::Device> devices;
  std::vector<MemoryBytes> memories;
  std::vector<ArenaBytes> arenas;
  std::vector<HeldObject> objects;
  std::vector<std::string> parts;  ///< Parts of blocks that steps run: "fc.1 fwd", "fc.1 bwd".
  Ids<exe::FunctionId, FunctionTimeline> functions;
  std::vector<ProgramReport> programs;
  std::vector<std::string> streams;         ///< Indexed by Traffic::object of stream transfers.
  std::vector<std::string> remote_buffers;  ///< Indexed by Traffic::object of other transfers.
  std::vector<int64_t> remote_entries;      ///< Number of entries of each remote buffer.
};

/// Computes a report from an executable alone. `max_events` is the largest
/// number of events in the trace of each program.
Report make_report(const exe::Executable& executable, const Rates& rates,
                   int64_t max_events = kMaxEvents);

/// Returns the report as JSON of version kReportVersion.
std::string to_json(const Report& report);

/// Returns one HTML file with the report and a viewer that works offline. Of measured runs, it has
/// the first 10,000 events.
std::string to_html(const Report& report);

/// Returns the traces as JSON of the Trace Event Format, which Perfetto and Chrome read.
std::string to_chrome_trace(const Report& report);

}  // namespace sluice::report
