#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "sluice/base/shape.h"

namespace sluice::check {

/// What is wrong with the bytes that a plan gives a tensor in a layout; empty if nothing. Row-major
/// ("row") takes the bytes of the elements, any other layout at least as many: its padding is known
/// to its target alone, which refuses a kernel whose operand has fewer bytes than the layout takes.
std::string wrong_bytes(int64_t bytes, const TensorSpec& spec, std::string_view layout);

}  // namespace sluice::check
