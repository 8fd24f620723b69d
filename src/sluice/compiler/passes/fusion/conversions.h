#pragma once
#include "sluice/compiler/program.h"

namespace sluice::compiler {

/// Before: variables, parameters and the values that overwrite them have layouts. After: each value
/// has a layout that its producer and its readers support, with conversions where needed. Results,
/// messages, streams and remote entries are row-major. Returns the number of conversions.
int64_t convert_layouts(Body& body, const Program& program, const Target& target);

}  // namespace sluice::compiler
