#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "sluice/base/shape.h"

namespace sluice {

/// How a tensor lies in a buffer: row-major in logical order, or, for a matrix, in panels of `panel` columns: the first
/// panel holds its columns of all rows, row after row, then comes the next. Element (r, c) is at
/// (c / panel)·rows·panel + r·panel + c mod panel. Columns that the last panel has too many are padding: they hold
/// anything, and no element of a result depends on it.
struct Layout {
  int64_t panel = 0;  ///< 0: row-major.
  bool operator==(const Layout&) const = default;
};

/// "row", "panels32".
std::string to_string(const Layout& layout);
/// Error{kUsage} for another text.
Layout parse_layout(std::string_view text);

/// Elements that a buffer has, padding included. Error{kUsage} for panels of a tensor that is no matrix.
int64_t buffer_elements(const TensorSpec& spec, const Layout& layout);
int64_t buffer_bytes(const TensorSpec& spec, const Layout& layout);

/// Copies logical elements [begin, begin + n) between a buffer and a row-major array of n elements.
void read_elements(const TensorSpec& spec, const Layout& layout, const std::byte* buffer,
                   int64_t begin, std::span<std::byte> out);
void write_elements(const TensorSpec& spec, const Layout& layout, std::byte* buffer, int64_t begin,
                    std::span<const std::byte> in);

}  // namespace sluice
