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

/// Arrays of host streams: the entries of each, in order, by index in Executable::streams. With several replicas, the
/// first axis of an entry is theirs.
using StreamEntries = std::map<int32_t, std::vector<HostTensor>>;

/// What a plan computes, whoever runs it: an executable run on values alone. Kernels are the
/// reference kernels, in float, of the ops that they name, fused ones stage by stage; an operand is the value that it names,
/// in the instance of the running activation. Addresses, arenas, frames, layouts, tasks, barriers,
/// queues and the capacity of channels are not looked at: that they bring the values where they are
/// read is what check::violations proves, that the values are right is what this shows.
class ValueProgram {
 public:
  /// `variables`: their values before the first run, in every replica alike, by index in Executable::variables. Entries
  /// of remote buffers where no variable lives start as zeros.
  ValueProgram(exe::Executable executable, const std::vector<HostTensor>& variables);

  /// Runs a program and returns what it sends to its output streams. Variables and remote buffers
  /// keep their values between runs. Error{kUsage}, with the steps it was in, for a read of a value
  /// that nothing has made, an op that does not exist or does not make what its kernel says, an
  /// entry that does not exist or is written twice, a remote load that does not find what it names,
  /// devices or replicas that wait for each other, a final value that nothing makes.
  StreamEntries run(const std::string& program, const StreamEntries& inputs);

  const HostTensor& variable(int32_t index, int32_t replica = 0) { return home(index, replica); }
  void set_variable(int32_t index, int32_t replica, const HostTensor& value) {
    home(index, replica) = value;
  }
  /// An entry of a remote buffer, by index in Executable::remote_buffers; may be set.
  HostTensor& remote(int32_t buffer, int64_t entry, int32_t replica = 0);

 private:
  friend class ValueRun;

  HostTensor& home(int32_t variable, int32_t replica);

  exe::Executable executable_;
  std::map<std::pair<int32_t, int32_t>, HostTensor> variables_;  ///< By variable and replica.
  /// By buffer, entry and replica.
  std::map<std::tuple<int32_t, int64_t, int32_t>, HostTensor> remote_;
};

}  // namespace sluice::property
