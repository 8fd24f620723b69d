#pragma once
#include "sluice/compiler/program.h"

namespace sluice::compiler {

/// Before: bodies have kernels. The body of a loop returns its carried values. After:
/// - A result that is only the carried value of another parameter, as it was found, is not returned
///   (Node::Loop::rotates). Each parameter is the source of one result.
/// - A chain of rotating values begins with a new value. The new value overwrites the oldest value
/// of the
/// - chain in place if no node reads the oldest value afterwards. It is then the last version of
///   that parameter. Otherwise the new value is copied there; adds empty kernel choices for these
///   copies. Returns the number of results that the body does not return any more.
int64_t find_rotations(Program& program, const Context& context);

}  // namespace sluice::compiler
