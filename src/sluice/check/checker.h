#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "sluice/exe/executable.h"

namespace sluice::check {

/// A rule that a plan breaks. The rules:
///   index      An index, a size or an expression has no value; two programs have one name.
///   bounds     Bytes are outside their arena, frame or parameter, or on another device; an object
///              lies in an arena of another kind; bytes are not those of a tensor; an operand does
///              not begin at a whole element.
///   budget     The arenas of a device or a tier exceed its budget.
///   workspace  Workers share a slice, or a kernel needs more than one.
///   access     A step writes to memory that may only be read, or an argument differs from its
///              parameter.
///   value      Bytes do not hold the value that a read or a result names, or one of another dtype.
///   layout     A value is found in another layout than named, or the layout is unknown.
///   overlap    Operands, arguments or persistent bytes that must not share bytes do.
///   tasks      Tasks of one kernel touch bytes that another one writes, or not all of an operand.
///   sync       Tasks of two steps touch the same bytes, one of them writes, and no barrier is
///              between.
///   race       A step touches the bytes of a transfer in flight, or nothing orders two uses of a
///              tier or a stream.
///   wait       A wait waits for nothing, or is missing before a branch or the end of the function.
///   stream     Entries are not used in order, once each and as many as announced, or are of
///              another spec or direction.
///   remote     An entry is outside its buffer or does not hold the value named; loads find another
///              store than announced; counts, specs or places differ from the buffer's.
///   channel    A message is out of order, of another value or spec, too large, left over, or at
///              another device.
///   deadlock   Devices wait for each other.
///   loop       Carried values are not arguments of the right kind.
///   branch     An arm communicates.
///   final      A variable or constant does not hold its value after a run.
///   collective A collective comes out of sequence, more or less often than announced, or with
///              operands that no collective of the group has.
///   listing    The buffers that reports name are not those that the steps of a function use.
///   limit      More steps or nested calls than the options allow.
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
/// Tables and steps are judged one by one, and the transfers and collectives of a program are
/// counted without walking its loops. Then each program is run without data. A map from bytes to
/// values shows that every read finds the very value that it names (a value of this activation and
/// iteration, all its bytes, in its layout); functions bind parameters to their callers' values; a
/// frame is undefined when its function begins and after it ends. Transfers on another queue run
/// one after another in the order issued, at any time between issue and wait. Devices are run in
/// one interleaving; as programs wait only for data, others end the same, and vector clocks over
/// (device, queue) show what none of them orders. A loop is left early once its state repeats and
/// its counter reaches addresses modulo something only. Both arms of a branch are run from the same
/// state; afterwards a byte is known if both left the same value, or values to which both gave the
/// same name.
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
