#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "sluice/base/layout.h"
#include "sluice/base/shape.h"

namespace sluice::cpu {

/// The layouts of the CPU: row-major, and "panels" with a width, for matrices of f32 (panels.h says where an element is).
Layout in_panels(int64_t width);

/// Columns of a panel; 0: row-major. Error{kUsage} for a layout of another kind.
int64_t panel_width(const Layout& layout);

/// Whether a tensor may be in panels.
bool may_be_in_panels(const TensorSpec& spec);

/// Elements and bytes of a buffer, padding included. Error{kUsage} for panels of a tensor of another rank than 2.
int64_t buffer_elements(const TensorSpec& spec, const Layout& layout);
int64_t buffer_bytes(const TensorSpec& spec, const Layout& layout);

/// Copies logical elements [begin, begin + n) between a buffer and a row-major array of n elements.
void read_elements(const TensorSpec& spec, const Layout& layout, const std::byte* buffer,
                   int64_t begin, std::span<std::byte> out);
void write_elements(const TensorSpec& spec, const Layout& layout, std::byte* buffer, int64_t begin,
                    std::span<const std::byte> in);

}  // namespace sluice::cpu
