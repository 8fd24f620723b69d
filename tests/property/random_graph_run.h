#pragma once
#include <string>
#include <utility>
#include <vector>

#include "damage.h"
#include "random_graph.h"
#include "sluice/base/host_tensor.h"
#include "sluice/compiler/compile.h"
#include "sluice/session/session.h"

namespace sluice::property {

/// The results of a program's runs, each with a name: every stream entry, then all variables.
using Outcome = std::vector<std::pair<std::string, HostTensor>>;

/// Options of a session that runs a program.
struct Way {
  int threads = 1;
  std::vector<std::string> disable = {};
  bool interleaved = false;  ///< Advance workers and queues on one thread in random order.
  int devices = 1;
  int io_queues = 1;
  DeviceChoice device = {};  ///< Default: the CPU with `threads` threads.
  std::string text() const;
};

/// Whether an outcome ends with the entries of all remote buffers.
enum class Remote : uint8_t { kLeftOut, kShown };

/// Runs the program in the interpreter with float precision.
Outcome interpreted(const RandomProgram& program, Remote remote = Remote::kLeftOut);
/// Runs the program in a session. Error{kInternal} if the checker refuses its plan, or if the
/// measured bytes of a device differ from the planned ones.
Outcome executed(const RandomProgram& program, const Way& way);

/// Compiles a plan for CPUs with two threads each.
Compiled compiled(const Ir& ir, int devices, const std::vector<std::string>& disable = {},
                  exe::Space remote = exe::Space::kHost);
/// Runs the value program of a plan, which may have been damaged after compilation. The outcome
/// includes remote entries.
Outcome by_values(const RandomProgram& program, const Compiled& compiled);
/// Returns a comparison that runs the value programs of damaged plans of `program`, which must live
/// longer. The results are those of the interpreter, with remote entries.
Comparison value_runs(const RandomProgram& program, const Compiled& right);

/// Describes the first difference; empty without one. NaNs are equal.
std::string difference(const Outcome& want, const Outcome& got);
/// Like difference(), but compares bits.
std::string bit_difference(const Outcome& want, const Outcome& got);

/// Whether a number is infinite or NaN.
bool has_nonfinite(const Outcome& outcome);

}  // namespace sluice::property
