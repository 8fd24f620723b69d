#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "sluice/exe/executable.h"
#include "sluice/exe/memory_needs.h"

namespace sluice::report {

/// One function in the list of `sluice plan`.
struct FunctionReport {
  std::string name;
  int32_t device = 0;
  int64_t steps = 0;
  int64_t program_bytes = 0;  ///< Bytes of its steps.
  int64_t frame_bytes = 0;
  int64_t bound_bytes = 0;  ///< Live-set bound of the frame, computed through calls.
  int64_t call_sites = 0;   ///< Number of steps and programs that call it.
};

/// Transfers of one replica in one run of a program, between device memory and one other memory, on
/// one queue. TrafficCounter defines the counts.
struct TransferReport {
  std::string program;
  std::string memory;  ///< Name of the other memory: "streams" or "tier NAME".
  std::string queue;   ///< Name of the queue: "compute" or an io queue such as "io".
  int64_t loads = 0;   ///< Transfers to the device.
  int64_t loaded_bytes = 0;
  int64_t stores = 0;
  int64_t stored_bytes = 0;
};

struct PlanReport {
  std::vector<exe::MemoryNeeds> memories;
  std::vector<FunctionReport> functions;
  /// By program, memory and queue; empty without transfers.
  std::vector<TransferReport> transfers;
  int64_t program_bytes = 0;  ///< Bytes of all functions; not part of a memory's bytes.
};

/// Reports the memory, functions and transfers of an executable before it runs. `most_holders` is
/// the largest number of holders listed for each memory.
PlanReport plan_report(const exe::Executable& executable, int most_holders = 10);

/// Formats 1234567 as "1,234,567".
std::string grouped(int64_t n);

/// Formats the report as text: a few lines for each memory and one line for each function.
std::string summary(const PlanReport& report);

}  // namespace sluice::report
