#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "sluice/exe/executable.h"

namespace sluice::check {

/// A rule that a plan breaks. The rules:
///   index      an index, a size or an expression without a value
///   bounds     bytes outside their arena, frame or parameter, or on another device
///   budget     a device's or a tier's arenas exceed its budget
///   workspace  workers share a slice, or a kernel needs more than one
///   access     a write to what may only be read, an argument that is not what its parameter says
///   value      bytes that do not hold the value that a read or a result names
///   layout     a value found in another layout than named
///   overlap    operands, arguments or persistent bytes that must not share bytes do
///   tasks      tasks of one kernel that touch what another writes, or not all of an operand
///   sync       tasks of two steps that touch the same bytes, one writing, no barrier between
///   race       bytes of a transfer in flight touched; unordered uses of a tier or stream
///   wait       for nothing; or none before a branch or the end of the transfer's function
///   stream     entries not in order, not once each, or to the wrong port
///   remote     an entry outside its buffer, one that does not hold the value named, loads that find what another store
///              than announced has left
///   channel    a message out of order, wrong, too large, left over, or at the wrong device
///   deadlock   devices that wait for each other
///   loop       carried values that are no arguments of the right kind
///   branch     an arm that communicates
///   final      a variable or constant that does not hold its value after a run
///   collective one that does not come where its sequence says, more or fewer than announced, or operands
///              that no collective of the group has
///   limit      more steps or nesting than the options allow
struct Violation {
  std::string rule;
  std::string message;  ///< What broke it, with program, function and step.
};

struct Options {
  /// Steps run of one program, in all replicas, before the checker gives up ("limit").
  int64_t max_steps = 50'000'000;
  int32_t max_depth = 500;      ///< Nested calls ("limit").
  int32_t max_violations = 16;  ///< It stops after so many.
};

/// Proves a plan, or says where it is wrong: empty means proved. Shares nothing with what made the
/// plan.
///
/// Each program is run without data. A map from bytes to values shows that every read finds the
/// very value that it names (a value of this activation and iteration, all its bytes, in its
/// layout); functions bind parameters to their callers' values; a frame is undefined when its
/// function begins and after it ends. Transfers on another queue run one after another in the order
/// issued, at any time between issue and wait. Devices are run in one interleaving; as programs
/// wait only for data, others end the same, and vector clocks over (device, queue) show what none
/// of them orders. A loop is left early once its state repeats and its counter reaches addresses
/// modulo something only. Both arms of a branch are run from the same state; afterwards a byte is
/// known if both left the same value, or values to which both gave the same name.
///
/// Replicas have memory of their own and one program, whose steps come in one order whatever the
/// data: a branch's arms do not communicate, trip counts are constants. So all members of a group
/// come to its collectives in the same order, which their sequence numbers show for every replica,
/// and the run in which the replicas take each step together never waits. As a collective lets
/// nobody leave before all are done, nobody else touches its operands while a peer reads or writes
/// them.
///
/// Assumes that every worker runs the same tasks of kernels with as many tasks, that kernels touch
/// what their operands say and that streams bound to queues move. What a tier's entries must hold
/// is known where a load names the value that it finds, and from which stores the program announces
/// that its loads find (Program::remote), which it must of all buffers that it moves entries of: a
/// transfer that is missing, or one of another entry, is seen there. Time grows with the steps run.
std::vector<Violation> violations(const exe::Executable& executable, const Options& options = {});

/// Proves a plan that this compiler has made. Error{kInternal} with the violations; Error{kUsage}
/// if all there is to say is that the plan has more steps than the options allow.
void prove(const exe::Executable& executable, const Options& options = {});

}  // namespace sluice::check
