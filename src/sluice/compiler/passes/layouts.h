#pragma once
#include "sluice/compiler/program.h"

namespace sluice::compiler {

/// Before: every value is row-major. After: a variable lies as the kernels that read it run fastest, if every use of it
/// in every entry can take that; so do the variables that updates combine with it element by element. Values that
/// overwrite a variable, and parameters that get it, have its layout; a body that is called with several layouts has a
/// copy for each. A carried value, and an argument that the body of a loop would convert, stay row-major. Returns the
/// number of variables that are not row-major.
int64_t choose_layouts(Program& program, const Context& context);

}  // namespace sluice::compiler
