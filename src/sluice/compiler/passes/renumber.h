#pragma once
#include "sluice/compiler/program.h"

namespace sluice::compiler {

/// Numbers the transfers of each body in its order. Stores in each call and conditional the number
/// of transfers before it. Removes the index parameters that nothing in a body reads, and their
/// arguments.
void renumber(Program& program);

}  // namespace sluice::compiler
