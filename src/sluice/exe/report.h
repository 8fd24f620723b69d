#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "sluice/exe/executable.h"

namespace sluice::exe {

/// What holds bytes at the peak.
struct Holder {
  std::string name;   ///< Variable, constant, tensor, arena.
  std::string kind;   ///< "variable", "constant", "buffer", "workspace", "slots", "remote".
  std::string where;  ///< Of a buffer: "main step 12 > Linear step 3".
  int64_t bytes = 0;
};

/// One memory with a budget: a device's, or a tier.
struct MemoryReport {
  std::string name;     ///< "device 0 (cpu)", "tier host".
  int32_t device = -1;  ///< -1: a tier.
  int64_t persistent_bytes = 0;
  int64_t frame_bytes = 0;
  int64_t workspace_bytes = 0;
  int64_t slot_bytes = 0;
  int64_t tier_bytes = 0;
  int64_t staging_bytes = 0;  ///< That direct transfers pass through.
  int64_t checksum_bytes = 0;
  int64_t total_bytes = 0;    ///< The peak: the sum of the above.
  int64_t budget_bytes = -1;  ///< -1: none.
  int64_t bound_bytes =
      0;             ///< No plan of the same order can need less: live sets, looking through calls.
  double ratio = 1;  ///< total / bound; 1 if both are 0.
  std::string peak_program;     ///< The program whose frames are the largest.
  std::vector<Holder> holders;  ///< At the peak, largest first.

  /// The least that has a plan, as far as this compiler finds one: it makes the same plan under every budget.
  int64_t smallest_budget() const { return total_bytes; }
};

/// One function, as `sluice plan` lists them.
struct FunctionReport {
  std::string name;
  int32_t device = 0;
  int64_t steps = 0;
  int64_t program_bytes = 0;  ///< Size of its step data.
  int64_t frame_bytes = 0;
  int64_t bound_bytes = 0;  ///< Live-set bound of the frame, looking through calls.
  int64_t call_sites = 0;   ///< Steps and program entries that name it.
};

/// What one run of a program moves in each replica between device memory and one other memory, on one queue, as
/// TrafficCounter counts.
struct TransferReport {
  std::string program;
  std::string memory;  ///< "streams", "tier host".
  std::string queue;   ///< "compute", "io".
  int64_t loads = 0;   ///< Transfers to the device.
  int64_t loaded_bytes = 0;
  int64_t stores = 0;
  int64_t stored_bytes = 0;
};

struct Report {
  std::vector<MemoryReport> memories;
  std::vector<FunctionReport> functions;
  std::vector<TransferReport> transfers;  ///< By program, memory and queue; none without transfers.
  int64_t program_bytes = 0;              ///< Of all functions; no part of any memory's bytes.
};

/// What the executable needs, known before it runs. `most_holders`: holders listed of each memory.
Report report(const Executable& executable, int most_holders = 10);

/// 1234567 as "1,234,567".
std::string grouped(int64_t n);

/// The report as text, a few lines for each memory and one for each function.
std::string summary(const Report& report);

}  // namespace sluice::exe
