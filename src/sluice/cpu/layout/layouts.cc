#include "sluice/cpu/layout/layouts.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "sluice/base/checked.h"
#include "sluice/base/error.h"
#include "sluice/cpu/gemm/panels.h"

namespace sluice::cpu {
namespace {

constexpr std::string_view kPanels = "panels";
constexpr std::string_view kTaps = "taps";

/// Positions of the elements of a weight (out, in, taps…) in taps.
struct Taps {
  explicit Taps(const Shape& shape)
      : out(shape[0]), in(shape[1]), taps(out * in == 0 ? 0 : shape.elements() / (out * in)) {}
  /// Returns the position of the element that is number i in row-major order.
  int64_t offset(int64_t i) const {
    const int64_t tap = i % taps, row = i / taps;
    return (tap * in + row % in) * out + row / in;
  }
  int64_t out, in, taps;
};

constexpr int64_t kRowsOfBlock = 32;

// As for_stretches(), for whole rows: panel by panel, whose rows are consecutive in the buffer.
template <typename F>
void for_rows(const Panels& panels, int64_t first, int64_t rows, F&& f) {
  for (int64_t p = 0; p < panels.count(); ++p) {
    const int64_t at = p * panels.stride() + first * panels.width;
    for (int64_t r = 0; r < rows; ++r)
      f(at + r * panels.width, r * panels.cols + p * panels.width, panels.cols_of(p));
  }
}

// Calls f(offset in the buffer, offset in the array, elements) for each range that is contiguous in
// both. Offsets are in elements.
template <typename F>
void for_stretches(const TensorSpec& spec, const Layout& layout, int64_t begin, int64_t count,
                   F&& f) {
  if (count == 0) return;
  const int64_t width = panel_width(layout);
  if (layout == in_taps()) {
    const Taps taps(spec.shape);
    for (int64_t i = 0; i < count; ++i) f(taps.offset(begin + i), i, int64_t{1});
    return;
  }
  if (width == 0) return f(begin, int64_t{0}, count);
  const int64_t cols = spec.shape[1];
  const Panels panels{spec.shape[0], cols, width};
  for (int64_t done = 0; done < count;) {
    const int64_t row = (begin + done) / cols;
    const int64_t col = (begin + done) % cols;
    if (col == 0 && count - done >= cols) {
      const int64_t rows = std::min(kRowsOfBlock, (count - done) / cols);
      for_rows(panels, row, rows, [&](int64_t at, int64_t to, int64_t n) { f(at, done + to, n); });
      done += rows * cols;
      continue;
    }
    const int64_t n = std::min({count - done, cols - col, width - col % width});
    f(panels.offset(row, col), done, n);
    done += n;
  }
}

// Copies bytes. Most stretches of panels have one size, whose copy the compiler writes here.
void copy_stretch(const std::byte* from, int64_t bytes, std::byte* to) {
  constexpr int64_t kUsual = 32 * sizeof(float);
  if (bytes == kUsual) {
    std::memcpy(to, from, kUsual);
  } else {
    std::memcpy(to, from, static_cast<size_t>(bytes));
  }
}

}  // namespace

Layout in_panels(int64_t width) { return Layout(kPanels, {width}); }

Layout in_taps() { return Layout(kTaps, {}); }

int64_t panel_width(const Layout& layout) {
  if (layout.is_row_major() || layout == in_taps()) return 0;
  const std::vector<int64_t> parameters = layout.parameters();
  require(layout.kind() == kPanels && parameters.size() == 1 && parameters[0] > 0,
          "layout: must be row, taps or panels with a width, got '{}'", to_string(layout));
  return parameters[0];
}

bool may_be_in_panels(const TensorSpec& spec) {
  return spec.shape.rank() == 2 && spec.dtype == f32 && spec.elements() > 0;
}

bool may_be_in_taps(const TensorSpec& spec) {
  return spec.shape.rank() >= 3 && spec.shape.rank() <= 5 && spec.dtype == f32 &&
         spec.elements() > 0;
}

bool may_have(const TensorSpec& spec, const Layout& layout) {
  if (layout.is_row_major()) return true;
  return layout == in_taps() ? may_be_in_taps(spec)
                             : may_be_in_panels(spec) && panel_width(layout) > 0;
}

int64_t buffer_elements(const TensorSpec& spec, const Layout& layout) {
  const int64_t width = panel_width(layout);
  if (layout == in_taps()) {
    const int rank = spec.shape.rank();
    require(rank >= 3 && rank <= 5, "layout taps: tensor must have 3 to 5 axes, got {}",
            to_string(spec));
  }
  if (width == 0) return spec.elements();
  require(spec.shape.rank() == 2, "layout {}: tensor must be a matrix, got {}", to_string(layout),
          to_string(spec));
  return Panels{spec.shape[0], spec.shape[1], width}.floats();
}

int64_t buffer_bytes(const TensorSpec& spec, const Layout& layout) {
  return checked_mul(buffer_elements(spec, layout), size_of(spec.dtype));
}

void read_elements(const TensorSpec& spec, const Layout& layout, const std::byte* buffer,
                   int64_t begin, std::span<std::byte> out) {
  const int64_t width = size_of(spec.dtype);
  for_stretches(spec, layout, begin, static_cast<int64_t>(out.size()) / width,
                [&](int64_t at, int64_t to, int64_t n) {
                  copy_stretch(buffer + at * width, n * width, out.data() + to * width);
                });
}

void write_elements(const TensorSpec& spec, const Layout& layout, std::byte* buffer, int64_t begin,
                    std::span<const std::byte> in) {
  const int64_t width = size_of(spec.dtype);
  for_stretches(spec, layout, begin, static_cast<int64_t>(in.size()) / width,
                [&](int64_t at, int64_t from, int64_t n) {
                  copy_stretch(in.data() + from * width, n * width, buffer + at * width);
                });
}

}  // namespace sluice::cpu
