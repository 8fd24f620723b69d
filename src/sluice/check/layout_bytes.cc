#include "sluice/check/layout_bytes.h"

#include <charconv>

namespace sluice::check {

std::optional<int64_t> layout_bytes(const TensorSpec& spec, std::string_view layout) {
  constexpr std::string_view kPanels = "panels";
  std::vector<int64_t> dims = spec.shape.dims();
  if (layout.starts_with(kPanels)) {
    int64_t width = 0;
    const char* const end = layout.data() + layout.size();
    const auto read = std::from_chars(layout.data() + kPanels.size(), end, width);
    if (read.ec != std::errc() || read.ptr != end || width < 1 || dims.size() != 2) return {};
    // The last panel is as wide as the others.
    const int64_t panels = dims[1] / width + (dims[1] % width != 0);
    if (__builtin_mul_overflow(panels, width, &dims[1])) return {};
  } else if (layout != "row") {
    return {};
  }
  int64_t bytes = size_of(spec.dtype);
  for (const int64_t d : dims) {
    if (__builtin_mul_overflow(bytes, d, &bytes)) return {};
  }
  return bytes;
}

}  // namespace sluice::check
