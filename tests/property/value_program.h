#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "sluice/base/host_tensor.h"
#include "sluice/exe/executable.h"

namespace sluice::property {

/// Entries of host streams, in order, by index in Executable::streams. With several replicas, the
/// first axis of an entry is the replica.
using StreamEntries = std::map<int32_t, std::vector<HostTensor>>;

/// Runs an executable on values alone: shows what a plan computes, whatever device runs it. Kernels
/// are the reference kernels of the ops that they name, in float; a fused kernel runs stage by
/// stage. An operand is the value that it names in the running activation. Addresses, arenas,
/// frames, layouts, tasks, barriers, queues and capacities of channels are ignored.
/// check::violations() proves that these bring each value to its readers; this class shows that the
/// values are right.
class ValueProgram {
 public:
  /// `variables`: the first value of each variable, equal in all replicas, by index in
  /// Executable::variables. Entries of remote buffers without a variable are zeros at first.
  ValueProgram(exe::Executable executable, const std::vector<HostTensor>& variables);

  /// Runs a program and returns the entries of its output streams. Variables and remote buffers
  /// keep their values between runs. Error{kUsage}, with the running steps, in these cases: a read
  /// of a value that was not made; an unknown op, or one with other results than its kernel
  /// declares; an entry that does not exist or is written twice; a remote load that does not find
  /// the value it names; devices or replicas that wait for each other; a final value that was not
  /// made.
  StreamEntries run(const std::string& program, const StreamEntries& inputs);

  const HostTensor& variable(int32_t index, int32_t replica = 0) {
    return stored_variable(index, replica);
  }
  void set_variable(int32_t index, int32_t replica, const HostTensor& value) {
    stored_variable(index, replica) = value;
  }
  /// An entry of a remote buffer, by index in Executable::remote_buffers; writable.
  HostTensor& remote(int32_t buffer, int64_t entry, int32_t replica = 0);

 private:
  friend class ValueRun;

  HostTensor& stored_variable(int32_t variable, int32_t replica);

  exe::Executable executable_;
  /// Indexed by variable and replica.
  std::map<std::pair<int32_t, int32_t>, HostTensor> variables_;
  /// Indexed by buffer, entry and replica.
  std::map<std::tuple<int32_t, int64_t, int32_t>, HostTensor> remote_;
};

}  // namespace sluice::property
