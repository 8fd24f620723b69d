#pragma once
#include "sluice/compiler/body.h"

namespace sluice::compiler {

/// Before: any body. After: each difference a - b whose result is used is the sum of a and -b, with
/// the same bits. Returns the number of differences.
int64_t split_sub(Body& body);

}  // namespace sluice::compiler
