#pragma once
#include <algorithm>
#include <cstdint>

#include "sluice/base/checked.h"

namespace sluice::cpu {

/// A matrix stored in panels of `width` columns. The first panel holds columns 0 … width - 1 of all
/// rows, row after row; the next panel follows. Element (r, c) is at float
/// (c / width)·rows·width + r·width + c mod width. Columns of the last panel from `cols` on are
/// padding; no result depends on their values. gemm() reads the matrix and its transpose from the
/// same bytes (gemm.h).
struct Panels {
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t width = 0;

  /// Returns the panel width for a matrix of `cols` columns: 16 if cols <= 16, otherwise 32.
  static constexpr int64_t width_for(int64_t cols) { return cols <= 16 ? 16 : 32; }
  static Panels of(int64_t rows, int64_t cols) { return {rows, cols, width_for(cols)}; }

  int64_t count() const { return ceil_div(cols, width); }
  /// Floats from one panel to the next.
  int64_t stride() const { return rows * width; }
  /// Floats of the whole matrix, padding included.
  int64_t floats() const { return checked_mul(count(), checked_mul(rows, width)); }
  /// Floats before element (r, c).
  int64_t offset(int64_t r, int64_t c) const {
    return c / width * stride() + r * width + c % width;
  }
  /// Columns of panel p without padding.
  int64_t cols_of(int64_t p) const { return std::min(width, cols - p * width); }
};

/// Some rows of some panels.
struct PanelRange {
  int64_t row_begin = 0;
  int64_t row_end = 0;
  int64_t panel_begin = 0;
  int64_t panel_end = 0;
};

/// Returns all rows of all panels.
inline PanelRange everything(const Panels& layout) { return {0, layout.rows, 0, layout.count()}; }

/// Copies a range between a row-major matrix, whose rows are `stride` floats apart, and the same
/// matrix in panels. `matrix` and `panels` point to the whole matrices; elements outside the range
/// are neither read nor written. to_panels() also sets the padding of the range to zero.
void to_panels(const float* matrix, int64_t stride, const Panels& layout, const PanelRange& range,
               float* panels);
void from_panels(const float* panels, const Panels& layout, const PanelRange& range, float* matrix,
                 int64_t stride);

}  // namespace sluice::cpu
