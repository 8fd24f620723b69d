#pragma once
#include <string>

#include "sluice/compiler/program.h"

namespace sluice::compiler {

/// Verifies the rules of body.h. Error{kInternal} naming the body and the node if
/// - a value is produced twice, or read before it is produced,
/// - a value is read or overwritten after another node has overwritten it,
/// - operands do not match their specs or the callee's parameters and results, or
/// - an index expression uses a parameter that the body lacks.
void verify(const Program& program, const Body& body);
/// Verifies all bodies that the entries reach. The error also names `pass`.
void verify(const Program& program, const std::string& pass);

}  // namespace sluice::compiler
