#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "sluice/exe/executable.h"
#include "sluice/train/checkpoints/checkpoint_folder.h"

/// The copy of the variables in host memory, which a thread writes (SaveCopy::kHost).
namespace sluice::train {

/// Returns the variables of a program, as Session::variables().
VariableSpecs variables_of(const exe::Executable& executable);

/// Returns the bytes of the variables that a process of a group writes.
int64_t copy_bytes(const VariableSpecs& variables, int process, int processes);

/// DoesNotFit if the budget of remote memory does not leave `bytes` bytes.
void check_copy_budget(const exe::Executable& executable, int64_t bytes);

/// Allocates a copy. It counts as remote memory. DoesNotFit also if the machine has less memory.
std::vector<std::byte> make_copy(const exe::Executable& executable, int64_t bytes);

}  // namespace sluice::train
