#pragma once
#include <optional>
#include <string>
#include <vector>

#include "sluice/exe/executable.h"
#include "sluice/report/forecast/forecast.h"
#include "sluice/report/forecast/links.h"

namespace sluice::report {

/// Forecast times of the steps of an executable, which must outlive this object. A kernel has one
/// time for its operations and one for the bytes of its operands. It takes their sum if its class
/// was measured, else the longer of both. An operand is in a cache if the cache can hold all bytes
/// that the function has touched since it last touched the operand. A kernel uses as many workers
/// as it has tasks. All replicas share the bandwidth of remote memory, and replicas that share
/// workers alternate at each step. In a cluster, replicas share neither, and the
/// messages of a collective are added to its time.
class StepTimes {
 public:
  StepTimes(const exe::Executable& executable, const Rates& rates);

  /// Returns the seconds of a kernel, a collective, a copy of a message or a transfer; 0 for any
  /// other step.
  double seconds(exe::FunctionId function, size_t step) const { return seconds_[function][step]; }
  /// Returns the memory at the other end of a transfer: 0 for streams, else 1 + the index of the
  /// tier.
  int memory_of(exe::TransferKind kind, int32_t object) const;
  int memories() const { return static_cast<int>(e_.tiers.size()) + 1; }
  /// Null unless the machine is a cluster.
  const Links* links() const { return links_ ? &*links_ : nullptr; }
  /// "streams", "tier host".
  std::string name_of_memory(int memory) const;

 private:
  /// `moving` has the seconds that one worker needs to move the bytes of the step's operands.
  double seconds_of(const exe::Step& step, double moving, exe::DeviceId device) const;
  double rounds_of_replicas(const exe::Device& device) const;

  const exe::Executable& e_;
  const Rates& rates_;
  std::optional<Links> links_;                         ///< Absent unless the machine is a cluster.
  Ids<exe::FunctionId, std::vector<double>> seconds_;  ///< For each step.
};

/// Bytes that a kernel or a collective reads and writes. An operand that is updated counts twice.
int64_t moved_bytes(const std::vector<exe::Operand>& operands);

}  // namespace sluice::report
