#pragma once
#include <algorithm>
#include <cstdint>

#include "sluice/base/checked.h"

namespace sluice::cpu {

/// A matrix stored in panels of `width` columns: the first panel holds columns 0 … width - 1 of all
/// rows, row after row, then comes the next. Element (r, c) is at
/// (c / width)·rows·width + r·width + c mod width. Columns that the last panel has beyond `cols` are
/// padding, which no element depends on. The matrix and its transpose are read from the same bytes
/// (gemm.h).
struct Panels {
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t width = 0;

  /// The width that a matrix of `cols` columns gets: 32, or 16 where that holds all of it.
  static constexpr int64_t width_for(int64_t cols) { return cols <= 16 ? 16 : 32; }
  static Panels of(int64_t rows, int64_t cols) { return {rows, cols, width_for(cols)}; }

  int64_t count() const { return ceil_div(cols, width); }
  /// Floats from one panel to the next.
  int64_t stride() const { return rows * width; }
  /// Floats in all, padding counted.
  int64_t floats() const { return checked_mul(count(), checked_mul(rows, width)); }
  /// Floats before element (r, c).
  int64_t offset(int64_t r, int64_t c) const {
    return c / width * stride() + r * width + c % width;
  }
  /// Columns of panel p that exist.
  int64_t cols_of(int64_t p) const { return std::min(width, cols - p * width); }
};

/// Some rows of some panels.
struct PanelRange {
  int64_t row_begin = 0;
  int64_t row_end = 0;
  int64_t panel_begin = 0;
  int64_t panel_end = 0;
};

/// All of it.
inline PanelRange everything(const Panels& layout) { return {0, layout.rows, 0, layout.count()}; }

/// Copies a range between a row-major matrix, whose rows are `stride` floats apart, and the same
/// matrix in panels. Both arrays are the whole matrices; nothing outside the range is touched.
/// to_panels() writes the padding.
void to_panels(const float* matrix, int64_t stride, const Panels& layout, const PanelRange& range,
               float* panels);
void from_panels(const float* panels, const Panels& layout, const PanelRange& range, float* matrix,
                 int64_t stride);

}  // namespace sluice::cpu
