#include "sluice/cpu/pool/pool.h"

#include <algorithm>

#include "sluice/base/checked.h"

namespace sluice::cpu {
namespace {

constexpr int64_t kLanes = 16;             // Lanes of the widest vector.
constexpr int64_t kMaxByteTaps = 256;      // Taps that fit into a byte.
constexpr int64_t kPackedFloats = 8192;    // A band is packed into this, if one row fits.
constexpr int64_t kMaxWorkspace = 262144;  // Larger windows are left to the reference kernel.

int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0); }

bool is_quads(const ops::PoolShape& s) {
  const auto halves = [](const ops::PoolAxis& a) {
    return a.kernel == 2 && a.stride == 2 && a.dilation == 1 && a.padding == 0 && a.x >= 2 * a.y;
  };
  const ops::PoolAxis& depth = s.axes[0];
  return depth.kernel == 1 && depth.x == depth.y && depth.padding == 0 && halves(s.axes[1]) &&
         halves(s.axes[2]);
}

PoolPlan plan_of(const ops::PoolShape& shape) {
  PoolPlan p;
  p.shape = shape;
  std::copy(shape.axes.begin(), shape.axes.end(), p.axes);
  p.x_positions = shape.x_positions();
  p.y_positions = shape.y_positions();
  p.is_quads = is_quads(shape);
  p.is_whole = std::all_of(shape.axes.begin(), shape.axes.end(), [](const ops::PoolAxis& a) {
    return a.kernel == a.x && a.y == 1 && a.padding == 0 && (a.dilation == 1 || a.x == 1);
  });
  return p;
}

/// Whether windows are small enough to be packed.
bool can_pack(const PoolPlan& p) {
  const ops::PoolAxis& width = p.axes[2];
  return std::max(width.kernel, width.stride) <= PoolPlan::kMaxTaps &&
         p.axes[0].kernel <= PoolPlan::kMaxRows &&
         p.axes[0].kernel * p.axes[1].kernel <= PoolPlan::kMaxRows;
}

/// Chooses the band. `rows(band)` is the number of rows that must be packed for it in each depth.
template <typename Rows>
bool choose_band(PoolPlan& p, int64_t max, Rows rows) {
  const int64_t row = p.residues * p.residue_floats * p.packed_depths;
  while (p.band < max && rows(p.band + 1) * row <= kPackedFloats) ++p.band;
  p.packed_rows = rows(p.band);
  p.workspace_floats = p.edge_floats + p.packed_rows * row;
  return p.workspace_floats <= kMaxWorkspace;
}

/// Adds the gradients of windows to the elements that their taps name. Taps that name no element of
/// x add nothing.
class Scatter {
 public:
  explicit Scatter(const PoolPlan& plan) : plan_(plan), count_(plan.shape.tap_count()) {
    const auto& [depth, height, width] = plan.axes;
    for (int64_t t = 0; t < count_; ++t) {
      window_offsets_[t] = {t / (width.kernel * height.kernel) * depth.dilation,
                            t / width.kernel % height.kernel * height.dilation,
                            t % width.kernel * width.dilation};
      offsets_[t] = (window_offsets_[t].depth * height.x + window_offsets_[t].height) * width.x +
                    window_offsets_[t].width;
    }
    while (first_inside_ < width.y && width.start(first_inside_) < 0) ++first_inside_;
    end_inside_ = first_inside_;
    while (end_inside_ < width.y && is_inside(width, end_inside_)) ++end_inside_;
  }

  void run(const float* grad, const uint8_t* taps, int64_t planes, float* dx) const {
    const auto& [depth, height, width] = plan_.axes;
    std::fill_n(dx, planes * plan_.x_positions, 0.0f);
    for (int64_t p = 0; p < planes; ++p, dx += plan_.x_positions) {
      for (int64_t d = 0; d < depth.y; ++d) {
        for (int64_t h = 0; h < height.y; ++h, grad += width.y, taps += width.y)
          add_row(d, h, grad, taps, dx);
      }
    }
  }

 private:
  // Distances of an element from the start of its window.
  struct WindowOffset {
    int64_t depth, height, width;
  };

  static bool holds(int64_t i, int64_t size) { return i >= 0 && i < size; }
  static bool is_inside(const ops::PoolAxis& a, int64_t o) {
    return a.start(o) >= 0 && a.start(o) + (a.kernel - 1) * a.dilation < a.x;
  }

  void add_row(int64_t d, int64_t h, const float* grad, const uint8_t* taps, float* dx) const {
    const auto& [depth, height, width] = plan_.axes;
    const int64_t row = (depth.start(d) * height.x + height.start(h)) * width.x;
    const auto add_checked = [&, &depth = depth, &height = height, &width = width](int64_t o) {
      if (taps[o] >= count_) return;
      const WindowOffset& at = window_offsets_[taps[o]];
      if (holds(width.start(o) + at.width, width.x) &&
          holds(height.start(h) + at.height, height.x) && holds(depth.start(d) + at.depth, depth.x))
        dx[row + width.start(o) + offsets_[taps[o]]] += grad[o];
    };
    int64_t o = 0;
    if (is_inside(depth, d) && is_inside(height, h)) {
      for (; o < first_inside_; ++o) add_checked(o);
      for (; o < end_inside_; ++o) {
        if (taps[o] < count_) dx[row + width.start(o) + offsets_[taps[o]]] += grad[o];
      }
    }
    for (; o < width.y; ++o) add_checked(o);
  }

  const PoolPlan& plan_;
  const int64_t count_;
  // Windows [first, end) of a row have no padding along the width.
  int64_t first_inside_ = 0, end_inside_ = 0;
  int64_t offsets_[kMaxByteTaps];
  WindowOffset window_offsets_[kMaxByteTaps];
};

}  // namespace

std::optional<PoolPlan> PoolPlan::forward(const ops::PoolShape& shape) {
  PoolPlan p = plan_of(shape);
  if (p.is_quads) return p;
  if (!can_pack(p)) return std::nullopt;
  const auto& [depth, height, width] = p.axes;
  const int64_t row = round_up(width.y, kLanes);
  int32_t residue_index[kMaxTaps] = {}, index_of[kMaxTaps];
  std::fill(std::begin(index_of), std::end(index_of), -1);
  int64_t right = 0;
  p.left = ceil_div(width.padding, width.stride);
  for (int64_t k = 0; k < width.kernel; ++k) {
    const int64_t at = k * width.dilation - width.padding;  // Element of x for the first result.
    const int64_t step = floor_div(at, width.stride);
    const int64_t residue = at - step * width.stride;
    if (index_of[residue] < 0) {
      index_of[residue] = static_cast<int32_t>(p.residues);
      p.residue_of[p.residues++] = static_cast<int32_t>(residue);
    }
    right = std::max(right, step);
    residue_index[k] = index_of[residue];
    p.offset[k] = static_cast<int32_t>(p.left + step);
  }
  p.residue_floats =
      p.left + std::max(row + right, round_up(ceil_div(width.x, width.stride), kLanes)) + kLanes;
  for (int64_t k = 0; k < width.kernel; ++k)
    p.offset[k] += static_cast<int32_t>(residue_index[k] * p.residue_floats);
  p.edge_floats = row;
  p.packed_depths = depth.kernel;
  const auto rows = [&h = height](int64_t band) {
    return std::min(h.x, (band - 1) * h.stride + (h.kernel - 1) * h.dilation + 1);
  };
  return choose_band(p, height.y, rows) ? std::optional(p) : std::nullopt;
}

std::optional<PoolPlan> PoolPlan::average_gradient(const ops::PoolShape& shape) {
  PoolPlan p = plan_of(shape);
  if (p.is_quads) return p;
  if (!can_pack(p)) return std::nullopt;
  const auto& [depth, height, width] = p.axes;
  // Element j of residue r of a row of x is element j·stride + r. Tap k of window j + step has it
  // if (j + step)·stride - padding + k·dilation is this element.
  int64_t first = 0, last = 0, count = 0;
  for (int64_t r = 0; r < width.stride; ++r) {
    p.first_of_residue[r] = static_cast<int32_t>(count);
    for (int64_t k = width.kernel - 1; k >= 0; --k) {
      const int64_t ahead = r + width.padding - k * width.dilation;
      if (ahead % width.stride != 0) continue;
      const int64_t step = ahead / width.stride;
      first = std::min(first, step);
      last = std::max(last, step);
      p.offset[count++] = static_cast<int32_t>(step);
    }
  }
  p.first_of_residue[width.stride] = static_cast<int32_t>(count);
  p.left = -first;
  for (int64_t i = 0; i < count; ++i) p.offset[i] += static_cast<int32_t>(p.left);
  p.residue_step = round_up(ceil_div(width.x, width.stride), kLanes);
  p.residues = 1;
  p.residue_floats = p.left + std::max(p.residue_step + last, round_up(width.y, kLanes)) + kLanes;
  p.edge_floats = p.residue_step * width.stride + round_up(width.y, kLanes);
  const auto windows = [](const ops::PoolAxis& a, int64_t band) {
    return std::min(a.y, (band - 1 + (a.kernel - 1) * a.dilation) / a.stride + 1);
  };
  p.packed_depths = windows(depth, 1);
  const auto rows = [&, &h = height](int64_t band) { return windows(h, band); };
  return choose_band(p, height.x, rows) ? std::optional(p) : std::nullopt;
}

std::optional<PoolPlan> PoolPlan::max_gradient(const ops::PoolShape& shape) {
  const PoolPlan p = plan_of(shape);
  return shape.tap_count() <= kMaxByteTaps ? std::optional(p) : std::nullopt;
}

void max_pool_planes(const PoolPlan& plan, const float* x, int64_t planes, float* y,
                     float* workspace, Isa isa) {
  with_kernels<internal::PoolKernels>(isa, [&](auto k) { k.max(plan, x, planes, y, workspace); });
}

void max_pool_taps_planes(const PoolPlan& plan, const float* x, int64_t planes, uint8_t* taps,
                          float* workspace, Isa isa) {
  with_kernels<internal::PoolKernels>(isa,
                                      [&](auto k) { k.taps(plan, x, planes, taps, workspace); });
}

void average_pool_planes(const PoolPlan& plan, const float* x, int64_t planes, float* y,
                         float* workspace, Isa isa) {
  with_kernels<internal::PoolKernels>(isa,
                                      [&](auto k) { k.average(plan, x, planes, y, workspace); });
}

void max_pool_grad_planes(const PoolPlan& plan, const float* grad, const uint8_t* taps,
                          int64_t planes, float* dx, Isa isa) {
  if (!plan.is_quads) return Scatter(plan).run(grad, taps, planes, dx);
  with_kernels<internal::PoolKernels>(
      isa, [&](auto k) { k.max_grad_quads(plan, grad, taps, planes, dx); });
}

void average_pool_grad_planes(const PoolPlan& plan, const float* grad, int64_t planes, float* dx,
                              float* workspace, Isa isa) {
  with_kernels<internal::PoolKernels>(
      isa, [&](auto k) { k.average_grad(plan, grad, planes, dx, workspace); });
}

}  // namespace sluice::cpu
