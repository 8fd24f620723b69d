#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "sluice/exe/executable.h"

namespace sluice::check {

/// One fault of a plan. `rule` is one of:
///   index      An index, a size or an expression has no value, or two programs have one name.
///   bounds     Bytes are outside their arena, frame or parameter, or on another device. An arena
///              of the wrong kind holds an object. A tensor has the wrong number of bytes. An
///              operand begins inside an element.
///   budget     The arenas of a device or a tier exceed its budget.
///   workspace  Workers share a slice of the workspace, or a kernel needs more than one slice.
///   access     A step writes to read-only memory, or an argument differs from its parameter.
///   value      Bytes do not hold the value that a read or a result names, or its dtype differs.
///   layout     A value has another layout than the step names, or the layout is unknown.
///   overlap    Operands, arguments or persistent bytes overlap that must be disjoint.
///   tasks      Two tasks of one kernel touch the same bytes and one of them writes, or the tasks
///              do not cover an operand.
///   sync       Tasks of two steps touch the same bytes and one of them writes, without a barrier
///              between the steps.
///   race       A step touches the bytes of a transfer in flight, or nothing orders two uses of a
///              tier or a stream.
///   wait       A wait has no transfer to wait for, or is missing before a branch or the end of the
///              function.
///   stream     Entries are not used in order, once each, in the announced number, or differ in
///              spec or direction. Fields of a feed are not used equally often, are out of order,
///              or use an I/O queue, where the wait for a feed would block other transfers.
///   remote     An entry is outside its buffer or does not hold the named value. Loads find other
///              stores than announced. Counts, specs or addresses differ from those of the buffer.
///   channel    A message is out of order, has the wrong value or spec, is too large, is never
///              received, or is at the wrong device.
///   deadlock   Devices wait for each other. The ring of a feed's field is too short: an entry of
///              one field waits until another field is used.
///   loop       Carried values are not arguments of the right kind.
///   branch     An arm communicates, or the condition is not a readable bool.
///   final      A variable or constant does not hold its value after a run.
///   collective A collective is out of sequence, or runs more or less often than announced. Its
///              operands do not fit the size of its group.
///   listing    The buffers that reports name are not the buffers that the steps of a function use.
///   limit      The plan has more steps or deeper nested calls than the options allow.
struct Violation {
  std::string rule;
  std::string message;  ///< Describes the fault; names program, function and step.
};

struct Options {
  /// Maximum number of steps that are simulated for one program, over all replicas ("limit").
  int64_t max_steps = 50'000'000;
  int32_t max_depth = 500;      ///< Largest depth of nested calls ("limit").
  int32_t max_violations = 16;  ///< The checker reports at most this many violations.
};

/// Proves a plan. Returns the violations found; an empty result means that the plan is proved. The
/// checker shares nothing with the code that made the plan.
///
/// Checks tables and steps one by one. Counts the transfers and collectives of each program without
/// iterating over its loops. Then runs each program without data:
///   - A map from bytes to values shows that every read finds exactly the value that it names. The
///     read value must be that of this activation and iteration, with all its bytes, in its layout.
///   - Functions bind their parameters to values of their callers. A frame is undefined when its
///     function begins and after it ends.
///   - Transfers on an I/O queue run one after another in the order of issue. Each runs at any time
///     between its issue and its wait.
///   - Devices run in one interleaving. Programs wait only for data, so all interleavings have the
///     same result. Vector clocks over (device, queue) find the uses that nothing orders.
///   - A loop is left early once its state repeats, if addresses and remote entries depend on its
///     counter only modulo some number. Loops with messages, streams, collectives or remote entries
///     are left together, once the joint state of all devices repeats. The numbers in them must be
///     affine in the counters. Rings and channels must be in the same slots again, so the joint
///     period is a multiple of their depths. A loop that moves remote entries must be long
///     (exe/remote_trace.h). docs/design/0023-proof-of-loops.md has the argument.
///   - Both arms of a branch run from the same state. Afterwards a byte is known if both arms left
///     the same value, or left values with the same name in both arms.
///
/// Replicas have separate memory and run one program. Data do not change the order of its steps: a
/// branch's arms do not communicate, and trip counts are constants. So all members of a group run
/// its collectives in the same order, which sequence numbers prove for every replica. The run in
/// which all replicas take each step together therefore never waits. A collective ends for all
/// members at once, so no later step touches its operands while a peer reads or writes them.
///
/// The same holds for feeds. A feed supplies and consumes elements for all replicas together. In
/// that run all replicas have used the same number of elements.
///
/// The checker assumes three things. In kernels with equal numbers of tasks, one worker runs task t
/// of each. Kernels touch only the bytes of their operands. Each feed makes progress: an infeed
/// makes the next element once all rings have a free slot, and an outfeed consumes an element once
/// all its fields have been stored. `sluice plan` prints this assumption.
///
/// The checker knows the content of a tier's entry where a load names the value that it finds. In
/// addition, a program announces which stores its loads find (Program::remote). It must do so for
/// every buffer whose entries it moves. This announcement reveals a missing transfer and a transfer
/// of another entry. The checker's time grows with the number of steps run.
std::vector<Violation> violations(const exe::Executable& executable, const Options& options = {});

/// Proves a plan that this compiler has made. Error{kInternal} with the violations if the plan is
/// wrong. Error{kUsage} if the only violations are limits of the options ("limit").
void prove(const exe::Executable& executable, const Options& options = {});

}  // namespace sluice::check
