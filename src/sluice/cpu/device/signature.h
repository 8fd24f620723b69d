#pragma once
#include "sluice/exe/executable.h"
#include "sluice/target/target.h"

namespace sluice::cpu {

/// Checks the operands of a kernel, because kernels trust them and an executable may come from a
/// file. The operands must be inputs that the shape rule of the op accepts, then the outputs that
/// the rule infers from them. The rule is applied stage by stage if the kernel has stages.
/// Error{kBadFile} names the kernel, the value found and the value required. Error{kUsage} if an
/// operator or a layout is unknown.
void check_signature(const exe::Kernel& kernel);

/// Checks the operands and options of a collective that runs in replica groups like `group`.
/// Error{kBadFile} for wrong options; Error{kUsage} for a wrong operator, operand or group.
void check_signature(const exe::Collective& collective, const exe::ReplicaGroup& group);

/// Checks that the executable runs a kernel as its choice `made_for` requires. This concerns the
/// tasks, the part of each operand that a task touches, the workspace, and the operands that may
/// coincide. An input that the op updates may always coincide with the result. `kernel` must have
/// passed check_signature(). Error{kBadFile} names the kernel, the value found and the value
/// required.
void check_choice(const exe::Kernel& kernel, const KernelChoice& made_for);

}  // namespace sluice::cpu
