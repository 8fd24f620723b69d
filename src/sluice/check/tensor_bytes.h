#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "sluice/base/shape.h"

namespace sluice::check {

/// Returns the fault in the bytes that a plan assigns to a tensor in a layout, or an empty string.
/// A row-major tensor ("row") has exactly the bytes of its elements; any other layout has at least
/// as many. Only the target knows the padding of a layout. It rejects a kernel whose operand has
/// fewer bytes than its layout requires.
std::string wrong_bytes(int64_t bytes, const TensorSpec& spec, std::string_view layout);

}  // namespace sluice::check
