#include "sluice/cpu/pool/pool.h"
#include "sluice/cpu/pool/pool_vectors.h"

namespace sluice::cpu::internal {
namespace {

using V = VectorFor<kUnitIsa>::type;
constexpr int kLanes = V::kLanes;

/// The gradient that windows pass on. pack() packs a row of results for the windows in row
/// (depth, height). at() returns what the windows at `row` give to their elements with tap
/// `number`.
struct MaxGrad {
  static constexpr int64_t kArrays = 2;  // Arrays of a packed row: gradients, and taps as floats.
  MaxGrad(const PoolPlan& plan, const float* grad, const uint8_t* taps)
      : plan(plan), grad(grad), taps(taps) {}
  void next_plane() {
    grad += plan.y_positions;
    taps += plan.y_positions;
  }

  void pack(int64_t depth, int64_t height, float* to) const {
    const int64_t n = plan.axes[2].y;
    const int64_t first = (depth * plan.axes[1].y + height) * n;
    float* const numbers = to + plan.phase_floats;
    for (int64_t o = 0; o < n; o += kLanes) {
      load_some<V>(grad + first + o, n - o).store(to + plan.left + o);
      load_taps<V>(taps + first + o, n - o).store(numbers + plan.left + o);
    }
  }
  V at(const float* row, float number) const {
    return select(V::load(row + plan.phase_floats) == V(number), V::load(row), V(0.0f));
  }

  /// Computes the gradients a, b, c, d of the elements of min(n, kLanes) windows of 2 x 2, from
  /// result i on.
  [[gnu::always_inline]] void quad(V, int64_t i, int64_t n, V& a, V& b, V& c, V& d) const {
    const V g = V(0.0f) + load_some<V>(grad + i, n);
    const V tap = load_taps<V>(taps + i, n);
    a = select(tap == V(0.0f), g, V(0.0f));
    b = select(tap == V(1.0f), g, V(0.0f));
    c = select(tap == V(2.0f), g, V(0.0f));
    d = select(tap == V(3.0f), g, V(0.0f));
  }

  const PoolPlan& plan;
  const float* grad;
  const uint8_t* taps;
};

struct AverageGrad {
  static constexpr int64_t kArrays = 1;
  AverageGrad(const PoolPlan& plan, const float* grad, float* counts)
      : plan(plan), grad(grad), counts(counts) {
    if (!plan.is_quads) write_counts<V>(plan, counts);
  }
  void next_plane() { grad += plan.y_positions; }

  void pack(int64_t depth, int64_t height, float* to) const {
    const int64_t n = plan.axes[2].y;
    const float* const row = grad + (depth * plan.axes[1].y + height) * n;
    const V rows(static_cast<float>(plan.shape.count(0, depth) * plan.shape.count(1, height)));
    for (int64_t o = 0; o < n; o += kLanes) {
      const V share = load_some<V>(row + o, n - o) / divisors(plan, rows, counts + o, n - o);
      share.store(to + plan.left + o);
    }
  }
  V at(const float* row, float) const { return V::load(row); }

  [[gnu::always_inline]] void quad(V divisor, int64_t i, int64_t n, V& a, V& b, V& c, V& d) const {
    a = b = c = d = V(0.0f) + load_some<V>(grad + i, n) / divisor;
  }

  const PoolPlan& plan;
  const float* grad;
  const float* counts;
};

/// Computes the elements of windows of 2 x 2 in rows of n columns, at most kLanes if `kIsPart`,
/// from result `i` on. Rows of dx have `step` elements; those behind the windows are zero.
template <typename Grad, bool kIsPart>
void grad_quad_rows(const Grad& grad, V divisor, int64_t i, int64_t rows, int64_t n, int64_t step,
                    float* dx) {
  const int64_t rest = step - 2 * n;
  for (int64_t h = 0; h < rows; ++h, dx += 2 * step, i += n) {
    for (int64_t o = 0; o < (kIsPart ? 1 : n); o += kLanes) {
      V a, b, c, d;
      grad.quad(divisor, i + o, n - o, a, b, c, d);
      store_pairs(a, b, dx + 2 * o, 2 * (n - o));
      store_pairs(c, d, dx + step + 2 * o, 2 * (n - o));
    }
    fill(dx + 2 * n, rest, V(0.0f));
    fill(dx + step + 2 * n, rest, V(0.0f));
  }
}

/// Computes the elements of windows of 2 x 2 that are contiguous (are_flat_quads).
template <typename Grad>
void grad_flat_quads(const Grad& grad, V divisor, int64_t columns, int64_t results, float* dx) {
  const RowPairs<V> rows(columns);
  for (int64_t o = 0; o < results; o += kLanes, dx += 4 * kLanes) {
    const int64_t n = results - o;
    V a, b, c, d, even, odd, next_even, next_odd;
    grad.quad(divisor, o, n, a, b, c, d);
    rows.join(a, c, even, next_even);
    rows.join(b, d, odd, next_odd);
    store_pairs(even, odd, dx, 4 * n);
    store_pairs(next_even, next_odd, dx + 2 * kLanes, 4 * n - 2 * kLanes);
  }
}

template <typename Grad>
void grad_quads(const PoolPlan& plan, const Grad& grad, int64_t planes, float* dx) {
  const int64_t rows = plan.axes[1].y, columns = plan.axes[2].y, step = plan.axes[2].x;
  const int64_t rest = (plan.axes[1].x - 2 * rows) * step;
  const V divisor(static_cast<float>(plan.shape.divisor > 0 ? plan.shape.divisor : 4));
  planes *= plan.axes[0].x;
  if (are_flat_quads<V>(plan))
    return grad_flat_quads(grad, divisor, columns, planes * rows * columns, dx);
  const auto grad_rows =
      columns <= kLanes ? grad_quad_rows<Grad, true> : grad_quad_rows<Grad, false>;
  for (int64_t p = 0; p < planes; ++p, dx += 2 * rows * step + rest) {
    grad_rows(grad, divisor, p * rows * columns, rows, columns, step, dx);
    fill(dx + 2 * rows * step, rest, V(0.0f));
  }
}

/// The output positions whose windows may have input positions [begin, end).
struct Windows {
  Windows(const ops::PoolAxis& a, int64_t begin, int64_t end) {
    const int64_t before = begin + a.padding - (a.kernel - 1) * a.dilation;
    first = before > 0 ? (before + a.stride - 1) / a.stride : 0;
    last = (end - 1 + a.padding) / a.stride + 1;
    if (last > a.y) last = a.y;
  }
  int64_t first, last;
};

/// Returns the tap with which window o has input position i, or -1.
int64_t tap_of(const ops::PoolAxis& a, int64_t i, int64_t o) {
  const int64_t ahead = i + a.padding - o * a.stride;
  if (a.dilation == 1) return ahead;
  return ahead % a.dilation == 0 ? ahead / a.dilation : -1;
}

/// Computes a row of dx from the rows of windows that have its elements.
template <typename Grad>
void grad_row(const PoolPlan& plan, const Grad& grad, const PoolRows& rows, float* phases,
              float* dx) {
  const int64_t n = plan.axes[2].x;
  const int64_t stride = plan.axes[2].stride;
  const int64_t step = plan.phase_step;
  for (int64_t r = 0; r < stride && r < n; ++r) {
    const int64_t count = (n - r + stride - 1) / stride;
    for (int64_t j = 0; j < count; j += kLanes) {
      V sum(0.0f);
      for (int64_t i = 0; i < rows.count; ++i) {
        for (int64_t k = plan.first_of_phase[r]; k < plan.first_of_phase[r + 1]; ++k)
          sum = sum + grad.at(rows.row[i] + plan.offset[k] + j,
                              rows.number[i] + static_cast<float>(plan.tap[k]));
      }
      if (stride == 1)
        store_some(sum, dx + j, n - j);
      else
        sum.store(phases + r * step + j);
    }
  }
  if (stride == 2) {
    for (int64_t j = 0; j < step; j += kLanes)
      store_pairs(V::load(phases + j), V::load(phases + step + j), dx + 2 * j, n - 2 * j);
  } else if (stride > 2) {
    for (int64_t r = 0; r < stride && r < n; ++r) {
      for (int64_t j = 0; r + j * stride < n; ++j) dx[r + j * stride] = phases[r * step + j];
    }
  }
}

/// Computes depth `depth` of a plane of dx.
template <typename Grad>
void grad_depth(const PoolPlan& plan, const Grad& grad, int64_t depth, float* dx, float* phases,
                float* packed) {
  const ops::PoolAxis& deep = plan.axes[0];
  const ops::PoolAxis& height = plan.axes[1];
  const int64_t row_floats = Grad::kArrays * plan.phase_floats;
  const int64_t depth_floats = plan.packed_rows * row_floats;
  const Windows around(deep, depth, depth + 1);
  for (int64_t first = 0; first < height.x; first += plan.band) {
    const int64_t end = first + plan.band < height.x ? first + plan.band : height.x;
    const Windows band(height, first, end);
    for (int64_t d = around.first; d < around.last; ++d) {
      for (int64_t o = band.first; o < band.last; ++o)
        grad.pack(d, o, packed + (d - around.first) * depth_floats + (o - band.first) * row_floats);
    }
    for (int64_t h = first; h < end; ++h, dx += plan.axes[2].x) {
      PoolRows rows;
      rows.count = 0;
      const Windows beside(height, h, h + 1);
      for (int64_t d = around.first; d < around.last; ++d) {
        const int64_t i = tap_of(deep, depth, d);
        for (int64_t o = beside.first; o < beside.last && i >= 0; ++o) {
          const int64_t j = tap_of(height, h, o);
          if (j < 0) continue;
          rows.row[rows.count] =
              packed + (d - around.first) * depth_floats + (o - band.first) * row_floats;
          rows.number[rows.count++] =
              static_cast<float>((i * height.kernel + j) * plan.axes[2].kernel);
        }
      }
      grad_row(plan, grad, rows, phases, dx);
    }
  }
}

template <typename Grad>
void grad_planes(const PoolPlan& plan, Grad grad, int64_t planes, float* dx, float* workspace) {
  if (plan.is_quads) return grad_quads(plan, grad, planes, dx);
  // Around packed gradients are zeros, which add nothing whatever the taps there are.
  fill(workspace + plan.edge_floats, plan.workspace_floats - plan.edge_floats, V(0.0f));
  const int64_t depth_elements = plan.axes[1].x * plan.axes[2].x;
  for (int64_t p = 0; p < planes; ++p, grad.next_plane()) {
    for (int64_t d = 0; d < plan.axes[0].x; ++d, dx += depth_elements)
      grad_depth(plan, grad, d, dx, workspace, workspace + plan.edge_floats);
  }
}

}  // namespace

using Kernels = PoolKernels<kUnitIsa>;

template <>
void Kernels::max_grad(const PoolPlan& plan, const float* grad, const uint8_t* taps, int64_t planes,
                       float* dx, float* workspace) {
  grad_planes(plan, MaxGrad(plan, grad, taps), planes, dx, workspace);
}

template <>
void Kernels::average_grad(const PoolPlan& plan, const float* grad, int64_t planes, float* dx,
                           float* workspace) {
  // The counts follow the phases of a row.
  float* const counts = workspace + plan.axes[2].stride * plan.phase_step;
  grad_planes(plan, AverageGrad(plan, grad, counts), planes, dx, workspace);
}

}  // namespace sluice::cpu::internal
