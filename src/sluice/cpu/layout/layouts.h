#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "sluice/base/layout.h"
#include "sluice/base/shape.h"

namespace sluice::cpu {

/// Returns the layout "panels" with a width in columns, for matrices of f32. panels.h defines the
/// position of an element.
Layout in_panels(int64_t width);

/// Returns the layout "taps" for weights of convolutions (out, in, taps…) in f32. The axes are
/// stored in the order taps…, in, out: the output channels of a tap and input channel are adjacent.
Layout in_taps();

/// Returns the columns of a panel; 0 for "taps" and for row-major, the CPU's only other layouts.
/// Error{kUsage} for a layout of another kind.
int64_t panel_width(const Layout& layout);

/// Returns whether a tensor may be in panels: a matrix of f32 that has elements.
bool may_be_in_panels(const TensorSpec& spec);
/// Returns whether a tensor may be in taps: f32 with 3 to 5 axes and elements.
bool may_be_in_taps(const TensorSpec& spec);
/// Returns whether a tensor may have a layout.
bool may_have(const TensorSpec& spec, const Layout& layout);

/// Return the elements and the bytes of a buffer that holds the tensor, padding included.
/// Error{kUsage} if the tensor cannot have the layout because of its rank.
int64_t buffer_elements(const TensorSpec& spec, const Layout& layout);
int64_t buffer_bytes(const TensorSpec& spec, const Layout& layout);

/// Copies logical elements [begin, begin + n) between a buffer and a row-major array of n elements.
void read_elements(const TensorSpec& spec, const Layout& layout, const std::byte* buffer,
                   int64_t begin, std::span<std::byte> out);
void write_elements(const TensorSpec& spec, const Layout& layout, std::byte* buffer, int64_t begin,
                    std::span<const std::byte> in);

}  // namespace sluice::cpu
