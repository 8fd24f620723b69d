#pragma once
#include "sluice/compiler/body.h"

namespace sluice::compiler {

/// Before: any body. After: the negative of a negative is a view of the number itself, where that
/// has not been overwritten. Returns the number of views.
int64_t remove_double_neg(Body& body);

}  // namespace sluice::compiler
