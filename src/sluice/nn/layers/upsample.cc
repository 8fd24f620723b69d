#include <fmt/ranges.h>

#include <cmath>

#include "sluice/nn/layers.h"

namespace sluice::nn {
namespace {

// Returns a list with one number for each of `axes` axes.
template <typename T>
std::vector<T> for_axes(std::string_view option, const std::vector<T>& list, size_t axes) {
  if (list.size() == 1) return std::vector<T>(axes, list[0]);
  require(list.size() == axes,
          "Upsample: {} must have one number for all {} spatial axes or one for each, got {}",
          option, axes, list.size());
  return list;
}

}  // namespace

Upsample::Upsample(UpsampleOptions options) : options_(std::move(options)) {
  require(options_.size.empty() != options_.scale.empty(),
          "Upsample: must have a size or a scale, got {}", options_.size.empty() ? "none" : "both");
  for (const int64_t size : options_.size)
    require(size >= 1, "Upsample: a size must be at least 1, got {}", size);
  for (const double scale : options_.scale) {
    require(scale > 0 && std::isfinite(scale),
            "Upsample: a scale must be positive and finite, got {}", scale);
  }
  require(!options_.align_corners || options_.mode == ops::Interpolation::kLinear ||
              options_.mode == ops::Interpolation::kCubic,
          "Upsample: align_corners must be false for the nearest elements, got true; use kLinear "
          "or kCubic");
}

Tensor Upsample::build(Builder&, Tensor x) const {
  require(x.rank() >= 3 && x.rank() <= 5,
          "Upsample: x must have a batch, channels and 1 to 3 spatial axes, got '{}' {}", x.name(),
          to_string(x.spec()));
  const auto axes = static_cast<size_t>(x.rank() - 2);
  ops::InterpolateOptions options{.mode = options_.mode, .align_corners = options_.align_corners};
  if (!options_.size.empty())
    return ops::interpolate(x, for_axes("size", options_.size, axes), options);
  const std::vector<double> scale = for_axes("scale", options_.scale, axes);
  std::vector<int64_t> size;
  for (size_t a = 0; a < axes; ++a) {
    const double elements =
        std::floor(static_cast<double>(x.dim(static_cast<int>(a) + 2)) * scale[a]);
    require(elements <= 1 << 24, "Upsample: axis {} must get at most 2^24 elements, got {}", a + 2,
            elements);
    size.push_back(static_cast<int64_t>(elements));
    options.scales.push_back(static_cast<double>(static_cast<float>(1 / scale[a])));
  }
  return ops::interpolate(x, size, options);
}

std::string Upsample::cache_key() const {
  return fmt::format("{} {} {} {}", fmt::join(options_.size, ","), fmt::join(options_.scale, ","),
                     static_cast<int>(options_.mode), options_.align_corners);
}

}  // namespace sluice::nn
