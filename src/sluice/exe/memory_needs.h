#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sluice/exe/ids.h"

namespace sluice {

struct Provenance;

}  // namespace sluice

namespace sluice::exe {

struct Executable;
struct FrameBuffer;
struct Function;

/// The contents of an object in memory, in the terms of the model.
struct Contents {
  /// "variables", "optimizer state", "accumulators", "gradients", "activations", "workspace", …
  std::string kind = "others";
  std::string name = {};  ///< "fc.0.weight, first_order", "fc.1, gelu output (forward)".
};

/// An object that occupies bytes at the peak.
struct PeakObject {
  std::string name;   ///< Name in the plan of the variable, constant, buffer or arena.
  std::string kind;   ///< "variable", "constant", "buffer", "remote", or the kind of an arena.
  std::string where;  ///< Buffer: step at which it is live, "main step 12 > Linear step 3".
  int64_t bytes = 0;
  FunctionId function;  ///< The function whose frame has the buffer; else invalid.
  /// Index of the variable, constant or remote buffer, or of the buffer in its function; else -1.
  int32_t index = -1;
  Contents contents = {};  ///< As errors and reports name it.
  /// Buffer: provenance of the first tensor in it. Null: none.
  std::shared_ptr<const Provenance> provenance = {};
};

/// Bytes needed in one memory with a budget: device memory or a tier.
struct MemoryNeeds {
  std::string name;  ///< "device 0 (cpu)", "tier host".
  DeviceId device;   ///< Device; invalid for a tier.
  int64_t persistent_bytes = 0;
  int64_t frame_bytes = 0;
  int64_t workspace_bytes = 0;
  int64_t slot_bytes = 0;
  int64_t tier_bytes = 0;
  int64_t staging_bytes = 0;  ///< Buffers for transfers that bypass the page cache.
  int64_t checksum_bytes = 0;
  int64_t ring_bytes = 0;     ///< Rings of feeds.
  int64_t total_bytes = 0;    ///< Peak: the sum of the fields above.
  int64_t budget_bytes = -1;  ///< Budget; -1: none.
  /// Lower bound for every plan with the same order of steps: maximum number of live bytes, callees
  /// included.
  int64_t bound_bytes = 0;
  double ratio = 1;                      ///< total / bound; 1 if both are 0.
  std::string peak_program;              ///< The program whose frames are the largest.
  std::vector<PeakObject> peak_objects;  ///< Objects at the peak, largest first.

  /// The smallest budget for which this compiler finds a plan: it makes the same plan under every
  /// budget.
  int64_t smallest_budget() const { return total_bytes; }
  /// Whether the budget is met.
  bool fits() const { return budget_bytes < 0 || total_bytes <= budget_bytes; }
};

/// Whether a buffer of a function holds the frame of a function that a step calls, not a tensor.
bool holds_frame(const Function& function, const FrameBuffer& buffer);

/// Computes the bytes needed in every device and tier, from the plan alone. At most `max_objects`
/// objects are listed for each memory.
std::vector<MemoryNeeds> memory_needs(const Executable& executable, int max_objects = 10);

}  // namespace sluice::exe
