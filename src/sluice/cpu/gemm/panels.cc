#include "sluice/cpu/gemm/panels.h"

#include <algorithm>
#include <cstring>

namespace sluice::cpu {
namespace {

// A constant size lets the compiler copy a row with two or four vector moves.
template <int64_t kWidth>
void copy_rows(const float* from, int64_t from_stride, float* to, int64_t to_stride, int64_t rows) {
  for (int64_t r = 0; r < rows; ++r)
    std::memcpy(to + r * to_stride, from + r * from_stride, kWidth * sizeof(float));
}

void copy_rows(const float* from, int64_t from_stride, float* to, int64_t to_stride, int64_t rows,
               int64_t cols) {
  if (cols == 32) return copy_rows<32>(from, from_stride, to, to_stride, rows);
  if (cols == 16) return copy_rows<16>(from, from_stride, to, to_stride, rows);
  for (int64_t r = 0; r < rows; ++r) std::copy_n(from + r * from_stride, cols, to + r * to_stride);
}

}  // namespace

void to_panels(const float* matrix, int64_t stride, const Panels& layout, const PanelRange& range,
               float* panels) {
  const int64_t rows = range.row_end - range.row_begin;
  for (int64_t p = range.panel_begin; p < range.panel_end; ++p) {
    float* const to = panels + p * layout.stride() + range.row_begin * layout.width;
    const int64_t cols = layout.cols_of(p);
    copy_rows(matrix + range.row_begin * stride + p * layout.width, stride, to, layout.width, rows,
              cols);
    for (int64_t r = 0; r < rows && cols < layout.width; ++r)
      std::fill(to + r * layout.width + cols, to + (r + 1) * layout.width, 0.0f);
  }
}

void from_panels(const float* panels, const Panels& layout, const PanelRange& range, float* matrix,
                 int64_t stride) {
  const int64_t rows = range.row_end - range.row_begin;
  for (int64_t p = range.panel_begin; p < range.panel_end; ++p) {
    copy_rows(panels + p * layout.stride() + range.row_begin * layout.width, layout.width,
              matrix + range.row_begin * stride + p * layout.width, stride, rows,
              layout.cols_of(p));
  }
}

}  // namespace sluice::cpu
