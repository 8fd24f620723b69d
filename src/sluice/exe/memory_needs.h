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
struct MemoryNeeds {
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

  /// The least that has a plan, as far as this compiler finds one: it makes the same plan under
  /// every budget.
  int64_t smallest_budget() const { return total_bytes; }
};

/// The needs of every device and tier, known before anything runs. `most_holders`: holders listed
/// of each memory.
std::vector<MemoryNeeds> memory_needs(const Executable& executable, int most_holders = 10);

}  // namespace sluice::exe
