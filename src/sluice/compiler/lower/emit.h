#pragma once
#include "sluice/compiler/program.h"

namespace sluice::compiler {

/// Writes the executable: its tables, a function for each body (callees first), and a program for
/// each entry. Assigns each block of a body's storage its offset in the frame. Returns the number
/// of buffers in frames.
int64_t emit_executable(Program& program, const Context& context);

}  // namespace sluice::compiler
