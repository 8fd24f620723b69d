#pragma once
#include <string_view>

#include "sluice/ir/op_def.h"

namespace sluice::ops {

/// Returns the registered operator of this type (register_op.h), or null.
const OpDef* find_registered_op(std::string_view type);

/// Returns the operator of the library with this type, or null.
const OpDef* find_op_of_library(std::string_view type);

}  // namespace sluice::ops
