#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "sluice/base/layout.h"
#include "sluice/base/shape.h"

namespace sluice::cpu {

/// Returns the layout "panels" with a width in columns, for matrices of f32. panels.h defines the
/// position of an element. The CPU's only other layout is row-major.
Layout in_panels(int64_t width);

/// Returns the columns of a panel; 0 for row-major. Error{kUsage} for a layout of another kind.
int64_t panel_width(const Layout& layout);

/// Returns whether a tensor may be in panels: a matrix of f32 that has elements.
bool may_be_in_panels(const TensorSpec& spec);

/// Return the elements and the bytes of a buffer that holds the tensor, padding included.
/// Error{kUsage} for panels if the rank of the tensor is not 2.
int64_t buffer_elements(const TensorSpec& spec, const Layout& layout);
int64_t buffer_bytes(const TensorSpec& spec, const Layout& layout);

/// Copies logical elements [begin, begin + n) between a buffer and a row-major array of n elements.
void read_elements(const TensorSpec& spec, const Layout& layout, const std::byte* buffer,
                   int64_t begin, std::span<std::byte> out);
void write_elements(const TensorSpec& spec, const Layout& layout, std::byte* buffer, int64_t begin,
                    std::span<const std::byte> in);

}  // namespace sluice::cpu
