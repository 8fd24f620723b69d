#pragma once
#include <string>
#include <utility>
#include <vector>

#include "random_graph.h"
#include "sluice/base/host_tensor.h"
#include "sluice/session.h"

namespace sluice::property {

/// What runs of a program leave behind: every stream entry, then all variables, each with a name.
using Outcome = std::vector<std::pair<std::string, HostTensor>>;

/// How a session runs a program.
struct Way {
  int threads = 1;
  std::vector<std::string> disable = {};
  bool interleaved = false;  ///< On one thread, advancing workers and queues at random.
  int devices = 1;
  DeviceChoice device = {};  ///< With one thread; default: the CPU.
  std::string text() const;
};

/// By the interpreter, in float.
Outcome interpreted(const RandomProgram& program);
/// By a session, whose plan must be accepted and whose planned bytes must be the measured ones;
/// Error{kInternal} if not.
Outcome executed(const RandomProgram& program, const Way& way);

/// What differs, empty if nothing does. NaNs equal each other.
std::string difference(const Outcome& want, const Outcome& got);

/// Whether some number is infinite or none.
bool has_nonfinite(const Outcome& outcome);

}  // namespace sluice::property
