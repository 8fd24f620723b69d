#pragma once
#include "sluice/compiler/program.h"

namespace sluice::compiler {

/// Before: variables, parameters and values that overwrite them have layouts. After: every value has a layout that its
/// maker and, through a conversion where needed, its readers can take; results, messages, streams and remote entries
/// are row-major. Returns the number of conversions.
int64_t convert_layouts(Body& body, const Program& program, const Target& target);

}  // namespace sluice::compiler
