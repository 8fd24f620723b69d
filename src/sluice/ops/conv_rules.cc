#include "sluice/ops/conv_rules.h"

#include <algorithm>
#include <tuple>

#include "sluice/base/checked.h"
#include "sluice/ops/rules.h"

namespace sluice::ops {
namespace {

constexpr int kMaxAxes = 3;

/// Checks that a list has one entry for each of `axes` axes, at least `min`. Completes a list of
/// one entry, which holds for all axes, and an empty one with `value`.
std::vector<int64_t> list_of(const OpView& op, std::string_view name,
                             const std::vector<int64_t>& given, size_t axes, int64_t min,
                             int64_t value) {
  if (given.empty()) return std::vector<int64_t>(axes, value);
  require(given.size() == axes || given.size() == 1,
          "{} (C3): {} must have {} entries, one for each axis, or one for all, got {}",
          op.def().name, name, axes, given.size());
  for (const int64_t entry : given) {
    require(entry >= min, "{} (C3): {} must be at least {}, got {}", op.def().name, name, min,
            entry);
  }
  return given.size() == axes ? given : std::vector<int64_t>(axes, given[0]);
}

ConvWindow make_window(const OpView& op, std::vector<int64_t> taps,
                       const std::vector<int64_t>& stride, const std::vector<int64_t>& padding,
                       const std::vector<int64_t>& dilation) {
  const size_t axes = taps.size();
  ConvWindow w{.taps = std::move(taps)};
  w.stride = list_of(op, "stride", stride, axes, 1, 1);
  w.dilation = list_of(op, "dilation", dilation, axes, 1, 1);
  const bool both = padding.size() == 2 * axes;
  require(both || padding.size() <= 1 || padding.size() == axes,
          "{} (C3): padding must have {} or {} entries, one or two for each axis, or one for all, "
          "got {}",
          op.def().name, axes, 2 * axes, padding.size());
  const std::vector<int64_t> pads = list_of(op, "padding", padding, both ? 2 * axes : axes, 0, 0);
  w.begin.assign(pads.begin(), pads.begin() + static_cast<std::ptrdiff_t>(axes));
  w.end.assign(pads.end() - static_cast<std::ptrdiff_t>(axes), pads.end());
  return w;
}

/// Sets the padding that a PadType represents.
void pad_by_type(const OpView& op, const ConvOptions& o, const Shape& x, ConvWindow& w) {
  if (o.pad_type == PadType::kExplicit) return;
  require(o.padding.empty(), "{} (C4): padding must be empty with a pad_type, got {} entries",
          op.def().name, o.padding.size());
  require(o.pad_type > PadType::kExplicit && o.pad_type <= PadType::kValid,
          "{} (C4): pad_type must be in [0, 3], got {}", op.def().name,
          static_cast<int>(o.pad_type));
  for (size_t a = 0; a < w.taps.size() && o.pad_type != PadType::kValid; ++a) {
    const int64_t size = x[static_cast<int>(a) + 2];
    std::tie(w.begin[a], w.end[a]) =
        same_padding(o.pad_type, size, w.taps[a], w.stride[a], w.dilation[a]);
  }
}

/// Requires two operands of one floating dtype with a batch, channels and 1 to 3 spatial axes.
void require_operands(const OpView& op, std::string_view first, std::string_view second) {
  require_float(op.input(0), fmt::format("{} (C1): {}", op.def().name, first));
  require(op.input(1).dtype == op.input(0).dtype,
          "{} (C1): {} must have the dtype of {}, {}, got {}", op.def().name, second, first,
          name_of(op.input(0).dtype), to_string(op.input(1)));
  const int rank = op.input(0).shape.rank();
  require(rank >= 3 && rank <= 2 + kMaxAxes,
          "{} (C2): {} must have a batch, channels and 1 to 3 spatial axes, got {}", op.def().name,
          first, to_string(op.input(0)));
  require(op.input(1).shape.rank() == rank, "{} (C2): {} must have as many axes as {}, {}, got {}",
          op.def().name, second, first, rank, to_string(op.input(1)));
}

void require_groups(const OpView& op, int64_t groups, int64_t channels, std::string_view what) {
  require(groups >= 1, "{} (C5): groups must be at least 1, got {}", op.def().name, groups);
  require(channels % groups == 0, "{} (C5): groups must divide the {} {}, got {}", op.def().name,
          channels, what, groups);
}

std::vector<int64_t> taps_of(const Shape& weight) { return {weight.begin() + 2, weight.end()}; }

std::vector<int64_t> require_taps(const OpView& op, std::vector<int64_t> taps) {
  for (const int64_t t : taps) {
    require(t >= 1, "{} (C7): the kernel must have at least 1 tap along each axis, got {}",
            op.def().name, to_string(Shape(taps)));
  }
  return taps;
}

/// Returns the positions of a window along an axis of `size` elements.
int64_t positions_of(const OpView& op, const ConvWindow& w, size_t a, int64_t size) {
  const int64_t extent = checked_add(checked_mul(w.dilation[a], w.taps[a] - 1), 1);
  const int64_t padded = checked_add(size, checked_add(w.begin[a], w.end[a]));
  require(extent <= padded,
          "{} (C7): the kernel covers {} elements of axis {} and must fit into its {} elements, "
          "padding included",
          op.def().name, extent, a + 2, padded);
  return (padded - extent) / w.stride[a] + 1;
}

/// Copies the lists of a window to the last axes of a ConvSizes.
void set_window(const ConvWindow& w, const Shape& x, const Shape& y, ConvSizes& s) {
  const size_t axes = w.taps.size(), skip = kMaxAxes - axes;
  for (size_t a = 0; a < axes; ++a) {
    s.x_size[skip + a] = x[static_cast<int>(a) + 2];
    s.y_size[skip + a] = y[static_cast<int>(a) + 2];
    s.taps[skip + a] = w.taps[a];
    s.stride[skip + a] = w.stride[a];
    s.padding[skip + a] = w.begin[a];
    s.dilation[skip + a] = w.dilation[a];
  }
}

}  // namespace

std::pair<int64_t, int64_t> same_padding(PadType type, int64_t size, int64_t taps, int64_t stride,
                                         int64_t dilation) {
  const int64_t extent = checked_add(checked_mul(dilation, taps - 1), 1);
  const int64_t covered = checked_add(checked_mul(ceil_div(size, stride) - 1, stride), extent);
  const int64_t total = std::max<int64_t>(0, covered - size);
  const int64_t begin = type == PadType::kSameUpper ? total / 2 : total - total / 2;
  return {begin, total - begin};
}

ConvWindow conv_window(const OpView& op, const ConvOptions& o) {
  ConvWindow w = make_window(op, require_taps(op, taps_of(op.input(1).shape)), o.stride, o.padding,
                             o.dilation);
  pad_by_type(op, o, op.input(0).shape, w);
  return w;
}

ConvWindow conv_window(const OpView& op, const ConvTransposeOptions& o) {
  ConvWindow w = make_window(op, require_taps(op, taps_of(op.input(1).shape)), o.stride, o.padding,
                             o.dilation);
  w.output_padding = list_of(op, "output_padding", o.output_padding, w.taps.size(), 0, 0);
  return w;
}

ConvWindow conv_window(const OpView& op, const ConvWeightGradOptions& o) {
  return make_window(op, require_taps(op, o.kernel), o.stride, o.padding, o.dilation);
}

ConvInference conv_rule(const OpView& op) {
  require_operands(op, "x", "w");
  const auto o = op.options<ConvOptions>();
  const Shape& x = op.input(0).shape;
  const Shape& weight = op.input(1).shape;
  const ConvWindow w = conv_window(op, o);
  require_groups(op, o.groups, x[1], "channels of x");
  require_groups(op, o.groups, weight[0], "output channels of w");
  require(weight[1] == x[1] / o.groups,
          "conv (C6): w must have {} input channels (channels of x / groups), got {}",
          x[1] / o.groups, to_string(weight));
  std::vector<int64_t> out{x[0], weight[0]};
  for (size_t a = 0; a < w.taps.size(); ++a)
    out.push_back(positions_of(op, w, a, x[static_cast<int>(a) + 2]));
  ConvInference result{Shape(std::move(out)), {}};
  result.sizes = {.batch = x[0],
                  .groups = o.groups,
                  .x_channels = x[1] / o.groups,
                  .y_channels = weight[0] / o.groups};
  set_window(w, x, result.out, result.sizes);
  return result;
}

ConvInference conv_transpose_rule(const OpView& op) {
  require_operands(op, "x", "w");
  const auto o = op.options<ConvTransposeOptions>();
  const Shape& x = op.input(0).shape;
  const Shape& weight = op.input(1).shape;
  const ConvWindow w = conv_window(op, o);
  const std::vector<int64_t>& extra = w.output_padding;
  require_groups(op, o.groups, x[1], "channels of x");
  require(weight[0] == x[1], "conv_transpose (C6): w must have {} input channels like x, got {}",
          x[1], to_string(weight));
  std::vector<int64_t> out{x[0], checked_mul(weight[1], o.groups)};
  for (size_t a = 0; a < w.taps.size(); ++a) {
    require(extra[a] < std::max(w.stride[a], w.dilation[a]),
            "conv_transpose (C4): output_padding must be less than the stride or the dilation, got "
            "{} for stride {} and dilation {}",
            extra[a], w.stride[a], w.dilation[a]);
    const int64_t size = x[static_cast<int>(a) + 2];
    const int64_t reach =
        checked_add(checked_mul(size - 1, w.stride[a]), checked_mul(w.dilation[a], w.taps[a] - 1));
    const int64_t length = checked_add(reach, 1 + extra[a]) - w.begin[a] - w.end[a];
    require(size >= 1 && length >= 1,
            "conv_transpose (C7): axis {} of the result must have elements, got {} for {} elements "
            "of x and padding {} and {}",
            a + 2, length, size, w.begin[a], w.end[a]);
    out.push_back(length);
  }
  ConvInference result{Shape(std::move(out)), {}};
  result.sizes = {
      .batch = x[0], .groups = o.groups, .x_channels = weight[1], .y_channels = x[1] / o.groups};
  set_window(w, result.out, x, result.sizes);
  return result;
}

ConvInference conv_weight_grad_rule(const OpView& op) {
  require_operands(op, "x", "y_grad");
  const auto o = op.options<ConvWeightGradOptions>();
  const Shape& x = op.input(0).shape;
  const Shape& y = op.input(1).shape;
  const size_t axes = x.dims().size() - 2;
  require(o.kernel.size() == axes, "conv_weight_grad (C3): kernel must have {} entries, got {}",
          axes, o.kernel.size());
  const ConvWindow w = conv_window(op, o);
  require_groups(op, o.groups, x[1], "channels of x");
  require_groups(op, o.groups, y[1], "channels of y_grad");
  std::vector<int64_t> positions{x[0], y[1]};
  for (size_t a = 0; a < axes; ++a)
    positions.push_back(positions_of(op, w, a, x[static_cast<int>(a) + 2]));
  require(y == Shape(positions), "conv_weight_grad (C6): y_grad must have the shape {}, got {}",
          to_string(Shape(positions)), to_string(y));
  std::vector<int64_t> out{y[1], x[1] / o.groups};
  out.insert(out.end(), o.kernel.begin(), o.kernel.end());
  ConvInference result{Shape(std::move(out)), {}};
  result.sizes = {.batch = x[0],
                  .groups = o.groups,
                  .x_channels = x[1] / o.groups,
                  .y_channels = y[1] / o.groups};
  set_window(w, x, y, result.sizes);
  return result;
}

ConvSizes conv_sizes(const OpView& op) {
  if (&op.def() == &conv_def()) return conv_rule(op).sizes;
  if (&op.def() == &conv_transpose_def()) return conv_transpose_rule(op).sizes;
  SLUICE_CHECK(&op.def() == &conv_weight_grad_def());
  return conv_weight_grad_rule(op).sizes;
}

}  // namespace sluice::ops
