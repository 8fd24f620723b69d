#include "sluice/ops/resample.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "sluice/base/checked.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/basic.h"
#include "sluice/ops/cast.h"
#include "sluice/ops/compare.h"
#include "sluice/ops/gather.h"
#include "sluice/ops/reshape.h"
#include "sluice/ops/rules.h"
#include "sluice/ops/slice.h"
#include "sluice/ops/take_along_axis.h"
#include "sluice/ops/transpose.h"
#include "sluice/ops/unary.h"

namespace sluice::ops {
namespace {

// One term of the elements of an axis: the index of an element, -1 for none, and its weight.
struct Tap {
  std::vector<int32_t> indices;
  std::vector<float> weights;
};

// Returns the first of the last axes that `sizes` resize.
int first_axis(const char* name, const Tensor& t, const std::vector<int64_t>& sizes) {
  require_float(t.spec(), fmt::format("{}: t", name));
  const int first = t.rank() - static_cast<int>(sizes.size());
  require(first >= 0 && !sizes.empty(), "{}: sizes must be for 1 to {} axes of {}, got {}", name,
          t.rank(), to_string(t.shape()), sizes.size());
  for (size_t i = 0; i < sizes.size(); ++i) {
    require(sizes[i] >= 1, "{}: size {} must be at least 1, got {}", name, i, sizes[i]);
    const int axis = first + static_cast<int>(i);
    // Positions are float32.
    require(t.shape()[axis] >= 1 && t.shape()[axis] <= 1 << 24,
            "{}: axis {} must have 1 to 2^24 elements, got shape {}", name, axis,
            to_string(t.shape()));
  }
  return first;
}

// Returns a vector as a tensor that broadcasts along the other axes.
Tensor along(const Tensor& t, int axis, const std::vector<float>& values) {
  std::vector<int64_t> dims(static_cast<size_t>(t.rank()), 1);
  dims[static_cast<size_t>(axis)] = std::ssize(values);
  return t.graph().constant(HostTensor::of<float>(Shape(dims), f32, values).cast(t.dtype()),
                            "weights");
}

Tensor taken(const TensorArg& t, int axis, const std::vector<int32_t>& indices) {
  const auto count = std::ssize(indices);
  const Tensor at = t->graph().constant(HostTensor::of<int32_t>({count}, i32, indices), "indices");
  return gather(t, {at, t.where}, {.axis = axis, .zero_out_of_range = true});
}

// Returns the sum of the taps along an axis.
Tensor combine(const TensorArg& t, int axis, const std::vector<Tap>& taps) {
  Tensor sum;
  for (const Tap& tap : taps) {
    Tensor term = taken(t, axis, tap.indices);
    if (!tap.weights.empty())
      term = ops::mul(TensorArg(term, t.where), along(t.tensor, axis, tap.weights));
    sum = sum.valid() ? ops::add(TensorArg(sum, t.where), term) : term;
  }
  return sum;
}

// The weights of cubic convolution for the four elements around a position (Keys, 1981).
std::vector<float> cubic_weights(float t) {
  constexpr float a = -0.75f;
  const auto inner = [&](float x) { return ((a + 2) * x - (a + 3)) * x * x + 1; };
  const auto outer = [&](float x) { return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a; };
  return {outer(t + 1), inner(t), inner(1 - t), outer(2 - t)};
}

// Positions are float32, as PyTorch computes them: an element at a rounded position is another one.
std::vector<Tap> taps_of(int64_t in, int64_t out, const InterpolateOptions& o, size_t number) {
  const bool nearest = o.mode == Interpolation::kNearest || o.mode == Interpolation::kNearestExact;
  const bool corners = o.align_corners && !nearest;
  float scale = static_cast<float>(in) / static_cast<float>(out);
  if (corners) {
    scale = out > 1 ? static_cast<float>(in - 1) / static_cast<float>(out - 1) : 0;
  } else if (!o.scales.empty()) {
    scale = static_cast<float>(o.scales[number]);
  }
  const size_t count = nearest ? 1 : o.mode == Interpolation::kLinear ? 2 : 4;
  std::vector<Tap> taps(count);
  const auto clamped = [&](float index) {
    return static_cast<int32_t>(std::clamp(index, 0.0f, static_cast<float>(in - 1)));
  };
  for (int64_t i = 0; i < out; ++i) {
    const auto at = static_cast<float>(i);
    if (nearest) {
      const float offset = o.mode == Interpolation::kNearest ? 0.0f : 0.5f;
      taps[0].indices.push_back(clamped(std::floor((at + offset) * scale)));
      continue;
    }
    float position = corners ? at * scale : scale * (at + 0.5f) - 0.5f;
    if (o.mode == Interpolation::kLinear) position = std::max(position, 0.0f);
    const float low = std::floor(position);
    const float t = position - low;
    const std::vector<float> weights = count == 2 ? std::vector<float>{1 - t, t} : cubic_weights(t);
    for (size_t k = 0; k < count; ++k) {
      taps[k].indices.push_back(clamped(low + static_cast<float>(k) - (count == 2 ? 0 : 1)));
      taps[k].weights.push_back(weights[k]);
    }
  }
  return taps;
}

// The windows of an adaptive pool along an axis: the indices of the k-th elements, -1 for none.
std::vector<std::vector<int32_t>> windows(int64_t in, int64_t out, std::vector<float>& sizes) {
  std::vector<std::vector<int32_t>> elements;
  for (int64_t i = 0; i < out; ++i) {
    const int64_t begin = i * in / out, end = ceil_div((i + 1) * in, out);
    sizes.push_back(static_cast<float>(end - begin));
    if (std::ssize(elements) < end - begin)
      elements.resize(static_cast<size_t>(end - begin),
                      std::vector<int32_t>(static_cast<size_t>(out), -1));
    for (int64_t k = begin; k < end; ++k)
      elements[static_cast<size_t>(k - begin)][static_cast<size_t>(i)] = static_cast<int32_t>(k);
  }
  return elements;
}

// Replaces absent elements of windows (-1) by the first element of the window.
std::vector<int32_t> or_first(std::vector<int32_t> indices, const std::vector<int32_t>& first) {
  for (size_t i = 0; i < indices.size(); ++i)
    if (indices[i] < 0) indices[i] = first[i];
  return indices;
}

// --- grid_sample

// Mirrors positions at the borders `low` and `high`, which are halves of `twice_low` and
// `twice_high`.
Tensor mirrored(const Tensor& x, int64_t twice_low, int64_t twice_high) {
  if (twice_low == twice_high) return x * 0.0;
  const double low = static_cast<double>(twice_low) / 2;
  const double span = static_cast<double>(twice_high - twice_low) / 2;
  const Tensor distance = abs(x - low);
  const Tensor flips = floor(detach(distance) / span);
  const Tensor rest = distance - flips * span;
  const Tensor even = equal(flips - floor(flips * 0.5) * 2.0, 0.0);
  return where(even, rest + low, (span + low) - rest);
}

// Returns positions in elements for coordinates in [-1, 1] along an axis of `size` elements.
Tensor positions(const Tensor& x, int64_t size, const GridSampleOptions& o) {
  const auto n = static_cast<double>(size);
  Tensor at = o.align_corners ? (x + 1.0) * ((n - 1) / 2) : ((x + 1.0) * n - 1.0) * 0.5;
  if (o.padding == GridPadding::kReflect)
    at = o.align_corners ? mirrored(at, 0, 2 * (size - 1)) : mirrored(at, -1, 2 * size - 1);
  if (o.padding == GridPadding::kZeros) return at;
  // PyTorch's gradient is 0 at and beyond the borders, as that of clip().
  return clip(at, {.min = 0, .max = n - 1});
}

// The images or volumes and the shape of the samples.
struct Grid {
  Tensor images;               // (batch, channels, elements)
  std::vector<int64_t> sizes;  // Sizes of the sampled axes.
  Shape samples;               // (batch, 1, samples)
};

// Returns the elements at integer positions, one for each sampled axis, times their weights (if
// any), zeros outside: (batch, channels, samples).
Tensor elements_at(const Grid& g, const Tensors& at, const Tensor& weight = {}) {
  Tensor inside, flat;
  for (size_t a = at.size(); a-- > 0;) {
    const Tensor own = logical_and(greater_equal(at[a], 0.0),
                                   less_equal(at[a], static_cast<double>(g.sizes[a] - 1)));
    inside = inside.valid() ? logical_and(inside, own) : own;
  }
  for (size_t a = 0; a < at.size(); ++a) {
    // A position that is NaN or far outside must not be cast.
    const Tensor index = cast(where(inside, at[a], 0.0), i32);
    const auto size = static_cast<double>(g.sizes[a]);
    flat = a == 0 ? index : flat * index.graph().scalar(size, i32, "size") + index;
  }
  const Tensor none = flat.graph().scalar(-1, i32, "none");
  Shape shape = g.samples;
  shape[1] = g.images.shape()[1];
  const Tensor indices = broadcast_to(reshape(where(inside, flat, none), g.samples), shape);
  const Tensor found = take_along_axis(g.images, indices, {.axis = 2, .zero_out_of_range = true});
  return weight.valid() ? where(inside, found * weight, 0.0) : found;  // The weight may be NaN.
}

}  // namespace

std::vector<const OpDef*> resample_ops() { return {}; }

Tensor interpolate(TensorArg t, const std::vector<int64_t>& sizes,
                   const InterpolateOptions& options) {
  const int first = first_axis("interpolate", t.tensor, sizes);
  require(options.scales.empty() || options.scales.size() == sizes.size(),
          "interpolate: scales must be absent or one for each of {} sizes, got {}", sizes.size(),
          options.scales.size());
  for (const double scale : options.scales)
    require(static_cast<float>(scale) > 0 && std::isfinite(static_cast<float>(scale)),
            "interpolate: a scale must be above 0 and a finite float32, got {}", scale);
  const bool copies =
      options.mode == Interpolation::kNearest || options.mode == Interpolation::kNearestExact;
  if (!copies && t->dtype() != f32) {  // Each term would be rounded.
    const Tensor y = interpolate({cast(t, f32), t.where}, sizes, options);
    return cast({y, t.where}, t->dtype());
  }
  Tensor y = t.tensor;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const int axis = first + static_cast<int>(i);
    y = combine({y, t.where}, axis, taps_of(y.shape()[axis], sizes[i], options, i));
  }
  return y;
}

Tensor adaptive_average_pool(TensorArg t, const std::vector<int64_t>& sizes) {
  const int first = first_axis("adaptive_average_pool", t.tensor, sizes);
  if (t->dtype() != f32) {  // Each term would be rounded.
    const Tensor y = adaptive_average_pool({cast(t, f32), t.where}, sizes);
    return cast({y, t.where}, t->dtype());
  }
  Tensor y = t.tensor;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const int axis = first + static_cast<int>(i);
    std::vector<Tap> taps;
    std::vector<float> counts;
    for (auto& indices : windows(y.shape()[axis], sizes[i], counts))
      taps.push_back({std::move(indices), {}});
    y = div(TensorArg(combine({y, t.where}, axis, taps), t.where), along(y, axis, counts));
  }
  return y;
}

Tensor adaptive_max_pool(TensorArg t, const std::vector<int64_t>& sizes) {
  const int first = first_axis("adaptive_max_pool", t.tensor, sizes);
  Tensor y = t.tensor;
  // The last axis first: the first maximum of a window is then the first in row-major order.
  for (size_t i = sizes.size(); i-- > 0;) {
    const int axis = first + static_cast<int>(i);
    std::vector<float> counts;
    const auto elements = windows(y.shape()[axis], sizes[i], counts);
    std::vector<TensorArg> candidates;
    for (const auto& indices : elements)
      candidates.emplace_back(taken({y, t.where}, axis, or_first(indices, elements[0])), t.where);
    y = maximum(candidates, t.where);
  }
  return y;
}

Tensor grid_sample(TensorArg t, TensorArg grid, const GridSampleOptions& o) {
  require_float(t->spec(), "grid_sample: t");
  const Shape& image = t->shape();
  const Shape& at = grid->shape();
  const int axes = image.rank() - 2;
  require(axes == 2 || axes == 3,
          "grid_sample: t must be (batch, channels, height, width) or (batch, channels, depth, "
          "height, width), got {}",
          to_string(image));
  const std::vector<int64_t> sizes(image.begin() + 2, image.end());
  const int64_t elements = Shape(sizes).elements();
  require(elements >= 1 && elements <= std::numeric_limits<int32_t>::max(),
          "grid_sample: an image must have 1 to 2^31 - 1 elements, got shape {}", to_string(image));
  require(at.rank() == image.rank() && at[0] == image[0] && at[axes + 1] == axes &&
              grid->dtype() == t->dtype(),
          "grid_sample: grid must be {} of ({}, {}rows, columns, {}), got {}", name_of(t->dtype()),
          image[0], axes == 3 ? "layers, " : "", axes, to_string(grid->spec()));
  require(o.mode == Interpolation::kLinear || o.mode == Interpolation::kNearest,
          "grid_sample: mode must be kLinear or kNearest");
  if (t->dtype() != f32) {  // A position of 16 bits is that of another element.
    const Tensor y = grid_sample({cast(t, f32), t.where}, {cast(grid, f32), t.where}, o);
    return cast({y, t.where}, t->dtype());
  }
  Shape result_shape = at;
  for (int a = axes + 1; a > 1; --a) result_shape[a] = at[a - 1];
  result_shape[1] = image[1];
  const int64_t samples = Shape(std::vector<int64_t>(at.begin() + 1, at.end() - 1)).elements();
  const Grid g{reshape(t, {image[0], image[1], elements}), sizes, {image[0], 1, samples}};
  Tensors position;
  for (int a = 0; a < axes; ++a) {
    const Tensor own = select(grid, axes - 1 - a, axes + 1);  // The last axis is the first entry.
    position.push_back(reshape(positions(own, sizes[static_cast<size_t>(a)], o), g.samples));
  }
  if (o.mode == Interpolation::kNearest) {
    for (Tensor& p : position) p = round(detach(p));
    return reshape(elements_at(g, position), result_shape);
  }
  Tensors low, high_weight;
  for (const Tensor& p : position) {
    low.push_back(floor(detach(p)));
    high_weight.push_back(p - low.back());
  }
  Tensor result;
  for (unsigned corner = 0; corner < 1u << axes; ++corner) {
    Tensors element = low;
    Tensor weight;
    // Bit 0 is for the last axis.
    for (unsigned bit = 0; bit < static_cast<unsigned>(axes); ++bit) {
      const size_t a = static_cast<size_t>(axes) - 1 - bit;
      const bool high = (corner >> bit & 1u) != 0;
      if (high) element[a] = element[a] + 1.0;
      const Tensor own = high ? high_weight[a] : 1.0 - high_weight[a];
      weight = weight.valid() ? weight * own : own;
    }
    const Tensor term = elements_at(g, element, weight);
    result = result.valid() ? result + term : term;
  }
  return reshape(result, result_shape);
}

}  // namespace sluice::ops
