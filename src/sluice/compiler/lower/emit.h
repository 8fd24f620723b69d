#pragma once
#include "sluice/compiler/program.h"

namespace sluice::compiler {

/// Writes the executable: its tables, a function for each body, callees first, with the offsets of the body's storage
/// in its frame, and a program for each entry. Returns the number of buffers in frames.
int64_t emit_executable(Program& program, const Context& context);

}  // namespace sluice::compiler
