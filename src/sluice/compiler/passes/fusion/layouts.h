#pragma once
#include "sluice/compiler/program.h"

namespace sluice::compiler {

/// Before: every value is row-major. After:
/// - A variable has the layout in which its kernels read it fastest, if all its uses in all entries
///   accept this layout. Variables that updates combine with it element by element get the same
///   layout.
/// - Values that overwrite a variable, and parameters that receive it, have its layout. A body that
///   is called with several layouts has a copy for each.
/// - A carried value stays row-major, and so does an argument that the body of a loop would
///   convert.
/// Returns the number of variables that are not row-major.
int64_t choose_layouts(Program& program, const Context& context);

}  // namespace sluice::compiler
