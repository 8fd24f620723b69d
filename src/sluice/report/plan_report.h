#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "sluice/exe/executable.h"
#include "sluice/exe/memory_needs.h"
#include "sluice/report/forecast/forecast.h"

namespace sluice::report {

/// One function in the list of `sluice plan`.
struct FunctionReport {
  std::string name;
  std::string model_name;  ///< "fc.1 … fc.3, backward, a micro-batch of a loop".
  exe::DeviceId device{0};
  int64_t steps = 0;
  int64_t program_bytes = 0;  ///< Bytes of its steps.
  int64_t frame_bytes = 0;
  int64_t bound_bytes = 0;  ///< Live-set bound of the frame, computed through calls.
  int64_t call_sites = 0;   ///< Number of steps and programs that call it.
};

/// The forward and backward parts of the blocks of a program that trains, in the order in which
/// they begin. With phases, a part runs all micro-batches before the next one.
struct ProgramBlocks {
  std::string program;
  std::vector<std::string> parts;  ///< "fc.0 fwd", "fc.1 … fc.3 fwd", …, "fc.0 bwd".
};

/// Transfers of one replica in one run of a program, between device memory and one other memory, on
/// one queue. TrafficCounter defines the counts.
struct TransferReport {
  std::string program;
  std::string memory;  ///< Name of the other memory: "streams" or "tier NAME".
  std::string queue;   ///< Name of the queue: "compute" or an I/O queue such as "io".
  int64_t loads = 0;   ///< Transfers to the device.
  int64_t loaded_bytes = 0;
  int64_t stores = 0;
  int64_t stored_bytes = 0;
};

/// Bytes of one kind of tensor in a memory.
struct KindBytes {
  std::string kind;  ///< "variables", "optimizer state", "activations", "workspace", …
  int64_t bytes = 0;
};

/// Objects that are live at the peak, under one name of the model.
struct PeakObjectGroup {
  std::string model_name;  ///< "fc.1.weight, accumulator".
  std::string kind;        ///< As in KindBytes.
  int64_t bytes = 0;
};

/// Shares of the bytes of one memory at its peak.
struct MemoryShares {
  std::vector<KindBytes> kinds;  ///< Largest first. Their sum is the memory's total.
  /// Largest first. Objects with the same model name share a row, which has their sum. For example,
  /// a loop alternates between two copies of a buffer.
  std::vector<PeakObjectGroup> peak_objects;
};

/// Bytes that one replica sends to other devices in one run of a program.
struct SentReport {
  std::string program;
  int64_t message_bytes = 0;     ///< To devices of the same replica.
  int64_t collective_bytes = 0;  ///< To other replicas: CollectiveBytes::sent_bytes().
};

/// The steps of an operator that run on reference kernels (exe::is_reference_kernel).
struct ReferenceSteps {
  std::string op;  ///< Type of the operator.
  int64_t steps = 0;
};

struct PlanReport {
  std::vector<exe::MemoryNeeds> memories;
  std::vector<MemoryShares> shares;  ///< Indexed by memory.
  /// Host memory that a run allocates in addition to `memories`. plan_report() does not know it.
  std::vector<KindBytes> host_buffers = {};
  Ids<exe::FunctionId, FunctionReport> functions;
  std::vector<ProgramBlocks> blocks;  ///< Programs that train.
  /// Whether the program runs a block at a time. plan_report() knows it where loops do so.
  bool phased = false;
  /// "images in: x 3, y 66 slots" for each feed.
  std::vector<std::string> feeds;
  /// Indexed by program, memory and queue; empty without transfers.
  std::vector<TransferReport> transfers;
  std::vector<SentReport> sent;  ///< Indexed by program.
  /// Operators with steps on reference kernels, by the number of these steps.
  std::vector<ReferenceSteps> reference_steps;
  int64_t program_bytes = 0;  ///< Bytes of all functions; not part of a memory's bytes.
};

/// Reports the memory, functions and transfers of an executable before it runs. `max_objects` is
/// the maximum number of objects listed for each memory.
PlanReport plan_report(const exe::Executable& executable, int max_objects = 10);

/// An option that would make a plan smaller.
struct Suggestion {
  std::string option;  ///< "--offload optimizer".
  /// Bytes of the largest device and of all tiers with it; -1: not computed.
  int64_t device_bytes = -1;
  int64_t tier_bytes = -1;
  bool fits = false;  ///< Whether the plan with it is computed and fits all budgets.
};

/// Facts about a plan that are not in its executable. Empty fields are not printed.
struct Outlook {
  std::vector<ProgramForecast> forecasts;
  std::string machine;              ///< The rates of the forecast.
  std::string offload;              ///< "offload: none; the program fits".
  std::vector<std::string> stages;  ///< Lines about stages on several devices.
  std::vector<Suggestion> suggestions;
  std::string closing;  ///< "compiled in 0.002 s; the plan is proved".
};

/// Formats 1234567 as "1,234,567".
std::string grouped(int64_t n);

/// Formats the plan in at most 25 lines of at most 100 columns, and four more for each of several
/// devices. The lines say whether each memory fits its budget, the kinds of its bytes and its
/// largest objects, the largest functions, the operators on reference kernels, the bytes that each
/// program moves, its forecast time, and options that would make the plan smaller.
std::string summary(const PlanReport& report, const Outlook& outlook = {});

/// Formats each memory with its arenas and largest objects by their names in the plan, each
/// program's transfers by queue, and every function.
std::string memory_map(const PlanReport& report);

}  // namespace sluice::report
