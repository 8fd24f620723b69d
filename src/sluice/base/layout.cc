#include "sluice/base/layout.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "sluice/base/checked.h"
#include "sluice/base/error.h"

namespace sluice {
namespace {

constexpr std::string_view kPanels = "panels";

// Calls `f(offset in the buffer, offset in the array, elements)` for each stretch that is contiguous in both.
template <typename F>
void for_stretches(const TensorSpec& spec, const Layout& layout, int64_t begin, int64_t count,
                   F&& f) {
  if (count == 0) return;
  if (layout.panel == 0) return f(begin, int64_t{0}, count);
  const int64_t rows = spec.shape[0];
  const int64_t cols = spec.shape[1];
  for (int64_t done = 0; done < count;) {
    const int64_t row = (begin + done) / cols;
    const int64_t col = (begin + done) % cols;
    const int64_t in_panel = col % layout.panel;
    const int64_t n = std::min({count - done, cols - col, layout.panel - in_panel});
    f(col / layout.panel * rows * layout.panel + row * layout.panel + in_panel, done, n);
    done += n;
  }
}

}  // namespace

std::string to_string(const Layout& layout) {
  return layout.panel == 0 ? "row" : fmt::format("{}{}", kPanels, layout.panel);
}

Layout parse_layout(std::string_view text) {
  if (text == "row") return {};
  Layout layout;
  const std::string_view digits = text.substr(std::min(kPanels.size(), text.size()));
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), layout.panel);
  require(text.starts_with(kPanels) && error == std::errc() &&
              end == digits.data() + digits.size() && layout.panel > 0,
          "layout: '{}' is neither row nor panels with a width", text);
  return layout;
}

int64_t buffer_elements(const TensorSpec& spec, const Layout& layout) {
  if (layout.panel == 0) return spec.elements();
  require(spec.shape.rank() == 2, "layout: {} is no matrix and cannot lie in panels",
          to_string(spec));
  return checked_mul(round_up(spec.shape[1], layout.panel), spec.shape[0]);
}

int64_t buffer_bytes(const TensorSpec& spec, const Layout& layout) {
  return checked_mul(buffer_elements(spec, layout), size_of(spec.dtype));
}

void read_elements(const TensorSpec& spec, const Layout& layout, const std::byte* buffer,
                   int64_t begin, std::span<std::byte> out) {
  const int64_t width = size_of(spec.dtype);
  for_stretches(spec, layout, begin, static_cast<int64_t>(out.size()) / width,
                [&](int64_t at, int64_t to, int64_t n) {
                  std::memcpy(out.data() + to * width, buffer + at * width,
                              static_cast<size_t>(n * width));
                });
}

void write_elements(const TensorSpec& spec, const Layout& layout, std::byte* buffer, int64_t begin,
                    std::span<const std::byte> in) {
  const int64_t width = size_of(spec.dtype);
  for_stretches(spec, layout, begin, static_cast<int64_t>(in.size()) / width,
                [&](int64_t at, int64_t from, int64_t n) {
                  std::memcpy(buffer + at * width, in.data() + from * width,
                              static_cast<size_t>(n * width));
                });
}

}  // namespace sluice
