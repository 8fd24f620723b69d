#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "sluice/base/host_tensor.h"
#include "sluice/exe/executable.h"

namespace sluice::property {

/// Arrays of host streams: the entries of each, in order, by index in Executable::streams.
using StreamEntries = std::map<int32_t, std::vector<HostTensor>>;

/// What a plan computes, whoever runs it: an executable run on values alone. Kernels are the
/// reference kernels, in float, of the ops that they name, fused ones stage by stage; an operand is the value that it names,
/// in the instance of the running activation. Addresses, arenas, frames, layouts, tasks, barriers,
/// queues and the capacity of channels are not looked at: that they bring the values where they are
/// read is what exe::check proves, that the values are right is what this shows.
class ValueProgram {
 public:
  /// `variables`: their values before the first run, by index in Executable::variables. Entries of
  /// remote buffers where no variable lives start as zeros.
  ValueProgram(exe::Executable executable, const std::vector<HostTensor>& variables);

  /// Runs a program and returns what it sends to its output streams. Variables and remote buffers
  /// keep their values between runs. Error{kUsage}, with the steps it was in, for a read of a value
  /// that nothing has made, an op that does not exist or does not make what its kernel says, an
  /// entry that does not exist or is written twice, a remote load that does not find what it names,
  /// devices that wait for each other, a final value that nothing makes, and collectives.
  StreamEntries run(const std::string& program, const StreamEntries& inputs);

  const HostTensor& variable(int32_t index) { return home(index); }
  /// An entry of a remote buffer, by index in Executable::remote_buffers; may be set.
  HostTensor& remote(int32_t buffer, int64_t entry);

 private:
  friend class ValueRun;

  HostTensor& home(int32_t variable);

  exe::Executable executable_;
  std::vector<HostTensor> variables_;
  std::map<std::pair<int32_t, int64_t>, HostTensor> remote_;  ///< By buffer and entry.
};

}  // namespace sluice::property
