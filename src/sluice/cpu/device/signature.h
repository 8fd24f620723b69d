#pragma once
#include "sluice/exe/executable.h"
#include "sluice/target/target.h"

namespace sluice::cpu {

/// Kernels trust their operands, and an executable may come from a file: Error{kBadFile} naming the kernel, what it has and
/// what it takes, unless its operands are inputs that the shape rule of its op accepts and then what the rule makes of
/// them, by stages if it has any.
void check_signature(const exe::Kernel& kernel);

/// The same for a collective of such groups of replicas.
void check_signature(const exe::Collective& collective, const exe::ReplicaGroup& group);

/// The same for what the kernel was chosen with: tasks, parts of operands, workspace, and which operands may coincide,
/// besides those that the op updates. `kernel` has passed check_signature.
void check_choice(const exe::Kernel& kernel, const KernelChoice& made_for);

}  // namespace sluice::cpu
