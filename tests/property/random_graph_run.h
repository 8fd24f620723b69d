#pragma once
#include <string>
#include <utility>
#include <vector>

#include "random_graph.h"
#include "sluice/base/host_tensor.h"
#include "sluice/compiler/compile.h"
#include "sluice/session/session.h"

namespace sluice::property {

/// What runs of a program leave behind: every stream entry, then all variables, each with a name.
using Outcome = std::vector<std::pair<std::string, HostTensor>>;

/// How a session runs a program.
struct Way {
  int threads = 1;
  std::vector<std::string> disable = {};
  bool interleaved = false;  ///< On one thread, advancing workers and queues at random.
  int devices = 1;
  int io_queues = 1;
  DeviceChoice device = {};  ///< With one thread; default: the CPU.
  std::string text() const;
};

/// Whether an outcome ends with the entries of all remote buffers.
enum class Remote : uint8_t { kLeftOut, kShown };

/// By the interpreter, in float.
Outcome interpreted(const RandomProgram& program, Remote remote = Remote::kLeftOut);
/// By a session, whose plan must be accepted and whose planned bytes must be the measured ones;
/// Error{kInternal} if not.
Outcome executed(const RandomProgram& program, const Way& way);

/// A plan for CPUs with two threads each.
Compiled compiled(const Ir& ir, int devices, const std::vector<std::string>& disable = {});
/// By the value program of a plan, which may have been changed since it was compiled. Remote
/// entries are shown.
Outcome by_values(const RandomProgram& program, const Compiled& compiled);

/// What differs, empty if nothing does. NaNs equal each other.
std::string difference(const Outcome& want, const Outcome& got);
/// The same, bit for bit.
std::string bit_difference(const Outcome& want, const Outcome& got);

/// Whether some number is infinite or none.
bool has_nonfinite(const Outcome& outcome);

}  // namespace sluice::property
