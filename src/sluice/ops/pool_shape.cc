#include "sluice/ops/pool_shape.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "sluice/base/checked.h"
#include "sluice/ops/conv_rules.h"

namespace sluice::ops {
namespace {

using Numbers = std::vector<int64_t>;

/// Returns `given` for each axis, or `otherwise` if it is empty. Requires numbers of at least 1:
/// one for each axis, or one for all.
Numbers per_axis(const Numbers& given, const Numbers& otherwise, size_t axes, std::string_view name,
                 std::string_view what) {
  const Numbers& list = given.empty() ? otherwise : given;
  const bool positive = std::all_of(list.begin(), list.end(), [](int64_t n) { return n >= 1; });
  require((list.size() == axes || list.size() == 1) && positive,
          "{} (C3): {} must be {} numbers of at least 1, or one for all axes, got {}", name, what,
          axes, to_string(Shape(list)));
  return list.size() == axes ? list : Numbers(axes, list[0]);
}

/// Elements of the input from the first to the last element of a window.
int64_t extent(const PoolAxis& a) { return checked_add(checked_mul(a.dilation, a.kernel - 1), 1); }

void set_padding(PoolAxis& a, const PoolOptions& o, size_t axis, size_t axes) {
  if (o.pad_type == PadType::kSameUpper || o.pad_type == PadType::kSameLower) {
    a.y = ceil_div(a.x, a.stride);
    std::tie(a.padding, a.padding_end) =
        same_padding(o.pad_type, a.x, a.kernel, a.stride, a.dilation);
  } else if (!o.padding.empty()) {
    const size_t count = o.padding.size();
    a.padding = o.padding[count == 1 ? 0 : axis];
    a.padding_end = o.padding[count == 1 ? 0 : count == axes ? axis : axis + axes];
  }
}

void check_padding(const PoolOptions& o, size_t axes, std::string_view name) {
  require(o.pad_type >= PadType::kExplicit && o.pad_type <= PadType::kValid,
          "{} (C4): pad_type must be in [0, {}], got {}", name, static_cast<int>(PadType::kValid),
          static_cast<int>(o.pad_type));
  require(o.padding.empty() || o.pad_type == PadType::kExplicit,
          "{} (C4): padding must be empty unless pad_type is explicit, got {}", name,
          to_string(Shape(o.padding)));
  require(o.padding.size() <= 1 || o.padding.size() == axes || o.padding.size() == 2 * axes,
          "{} (C4): padding must be 1, {} or {} numbers, got {}", name, axes, 2 * axes,
          to_string(Shape(o.padding)));
  const bool is_same = o.pad_type == PadType::kSameUpper || o.pad_type == PadType::kSameLower;
  require(!is_same || !o.ceil_mode,
          "{} (C4): ceil_mode must be false if pad_type is same, which sets the size of the result",
          name);
}

/// Sets the number of output positions, after the paddings.
void set_positions(PoolAxis& a, const PoolOptions& o, std::string_view name) {
  const int64_t half = extent(a) / 2;
  for (const int64_t p : {a.padding, a.padding_end}) {
    require(p >= 0 && p <= half,
            "{} (C4): padding must be at least 0 and at most half of the window, which is {}, "
            "got {}; use a larger kernel or pad x",
            name, half, p);
  }
  const int64_t padded = checked_add(a.x, a.padding + a.padding_end);
  const int64_t rest = padded - extent(a);
  const int64_t more = o.ceil_mode ? a.stride - 1 : 0;
  require(a.x >= 1 && checked_add(rest, more) >= 0,
          "{} (C5): a window must fit into the padded input, got a window of {} and an input of "
          "{}; use a smaller kernel or more padding",
          name, extent(a), padded);
  a.y = (rest + more) / a.stride + 1;
  // The last window must start inside the input or the padding before it.
  if (o.ceil_mode && (a.y - 1) * a.stride >= a.x + a.padding) --a.y;
}

}  // namespace

PoolShape pool_shape(const TensorSpec& x, const PoolOptions& o, std::string_view name) {
  const int rank = x.shape.rank();
  require(rank >= 3 && rank <= 5,
          "{} (C2): x must have a batch, channels and 1 to 3 spatial axes, got {}", name,
          to_string(x));
  const size_t axes = x.shape.dims().size() - 2;
  const Numbers kernel = per_axis(o.kernel, {}, axes, name, "kernel");
  const Numbers stride = per_axis(o.stride, kernel, axes, name, "stride");
  const Numbers dilation = per_axis(o.dilation, Numbers(axes, 1), axes, name, "dilation");
  check_padding(o, axes, name);
  PoolShape s;
  s.planes = checked_mul(x.shape[0], x.shape[1]);
  int64_t taps = 1;
  for (size_t i = 0; i < axes; ++i) {
    PoolAxis& a = s.axes[3 - axes + i];
    a.x = x.shape[static_cast<int>(i) + 2];
    a.kernel = kernel[i];
    a.stride = stride[i];
    a.dilation = dilation[i];
    set_padding(a, o, i, axes);
    set_positions(a, o, name);
    taps = checked_mul(taps, a.kernel);
  }
  constexpr int64_t kMaxTaps = std::numeric_limits<int32_t>::max();
  require(taps <= kMaxTaps, "{} (C3): kernel must have at most {} elements, got {}", name, kMaxTaps,
          taps);
  return s;
}

int64_t PoolAxis::first_tap(int64_t o) const {
  const int64_t before = -start(o);
  if (before <= 0) return 0;
  return std::min(kernel, dilation == 1 ? before : ceil_div(before, dilation));
}

int64_t PoolAxis::taps_below(int64_t o, int64_t limit) const {
  const int64_t room = limit - start(o);
  if (room <= 0) return 0;
  return std::min(kernel, dilation == 1 ? room : ceil_div(room, dilation));
}

int64_t PoolShape::count(size_t a, int64_t o) const {
  const PoolAxis& axis = axes[a];
  const int64_t taps = count_padding ? axis.taps_below(o, axis.x + axis.padding_end)
                                     : axis.end_tap(o) - axis.first_tap(o);
  return std::max<int64_t>(taps, 1);
}

PoolOptions windows_of(const AveragePoolOptions& o) {
  return {.kernel = o.kernel,
          .stride = o.stride,
          .padding = o.padding,
          .dilation = o.dilation,
          .ceil_mode = o.ceil_mode,
          .pad_type = o.pad_type};
}

PoolShape pool_shape(const TensorSpec& x, const AveragePoolOptions& o, std::string_view name) {
  require(o.divisor >= 0, "{} (C6): divisor must be at least 0, got {}", name, o.divisor);
  PoolShape s = pool_shape(x, windows_of(o), name);
  s.divisor = o.divisor;
  s.count_padding = o.count_padding;
  return s;
}

PoolShape pool_shape(const OpView& op) {
  const OpDef* const def = &op.def();
  const TensorSpec& x = op.input(0);
  if (def == &max_pool_grad_def()) {
    const auto o = op.options<MaxPoolGradOptions>();
    return pool_shape({o.shape, x.dtype, {}}, o, def->name);
  }
  if (def == &average_pool_grad_def()) {
    const auto o = op.options<AveragePoolGradOptions>();
    return pool_shape({o.shape, x.dtype, {}}, o, def->name);
  }
  if (def == &average_pool_def()) return pool_shape(x, op.options<AveragePoolOptions>(), def->name);
  return pool_shape(x, op.options<PoolOptions>(), def->name);
}

}  // namespace sluice::ops
