#pragma once
#include "sluice/compiler/program.h"

namespace sluice::compiler {

/// Before: bodies have kernels. The body of a loop returns its carried values. After:
/// - A result that is only the carried value of another parameter, as it was found, is not returned
///   (Node::Loop::rotates). Each parameter is the source of one result.
/// - A chain of such values begins with a new value. It overwrites the oldest value of the chain if
///   no node reads that one afterwards: it is then the last version of that parameter. Some new
///   values have to be copied there.
/// Adds empty choices for these copies.
/// Returns the number of results that are not returned any more.
int64_t find_rotations(Program& program, const Context& context);

}  // namespace sluice::compiler
