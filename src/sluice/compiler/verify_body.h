#pragma once
#include <string>

#include "sluice/compiler/program.h"

namespace sluice::compiler {

/// Error{kInternal} naming the body and the node if a body breaks a rule of body.h: a value that is made twice or read
/// before it is made, a value that is read or overwritten after it was overwritten, operands that do not match their
/// specs or the callee's parameters and results, an index expression with a parameter that the body lacks.
void verify(const Program& program, const Body& body);
/// The same for all bodies that the entries reach; the error names the pass.
void verify(const Program& program, const std::string& pass);

}  // namespace sluice::compiler
