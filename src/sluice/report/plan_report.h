#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "sluice/exe/executable.h"
#include "sluice/exe/memory_needs.h"

namespace sluice::report {

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

/// What one run of a program moves in each replica between device memory and one other memory, on
/// one queue, as TrafficCounter counts.
struct TransferReport {
  std::string program;
  std::string memory;  ///< "streams", "tier host".
  std::string queue;   ///< "compute", "io".
  int64_t loads = 0;   ///< Transfers to the device.
  int64_t loaded_bytes = 0;
  int64_t stores = 0;
  int64_t stored_bytes = 0;
};

struct PlanReport {
  std::vector<exe::MemoryNeeds> memories;
  std::vector<FunctionReport> functions;
  std::vector<TransferReport> transfers;  ///< By program, memory and queue; none without transfers.
  int64_t program_bytes = 0;              ///< Of all functions; no part of any memory's bytes.
};

/// What the executable needs, known before it runs. `most_holders`: holders listed of each memory.
PlanReport plan_report(const exe::Executable& executable, int most_holders = 10);

/// 1234567 as "1,234,567".
std::string grouped(int64_t n);

/// The report as text, a few lines for each memory and one for each function.
std::string summary(const PlanReport& report);

}  // namespace sluice::report
