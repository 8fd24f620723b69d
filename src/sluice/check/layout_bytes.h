#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

#include "sluice/base/shape.h"

namespace sluice::check {

/// Bytes of a tensor in a layout ("row", "panels32"), from the definition of layouts in
/// base/layout.h. None for another text, for panels of a tensor that is not a matrix, and for
/// numbers of more than 63 bits.
std::optional<int64_t> layout_bytes(const TensorSpec& spec, std::string_view layout);

}  // namespace sluice::check
