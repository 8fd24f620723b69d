#include "sluice/cpu/pool/pool.h"
#include "sluice/cpu/pool/pool_vectors.h"

namespace sluice::cpu::internal {
namespace {

using V = VectorFor<kUnitIsa>::type;
constexpr int kLanes = V::kLanes;

/// The gradients a, b, c, d of the elements of windows of 2 x 2. operator() computes those of
/// min(n, kLanes) windows, from result i on.
struct MaxQuads {
  [[gnu::always_inline]] void operator()(int64_t i, int64_t n, V& a, V& b, V& c, V& d) const {
    const V g = V(0.0f) + load_some<V>(grad + i, n);
    const V tap = load_taps<V>(taps + i, n);
    a = select(tap == V(0.0f), g, V(0.0f));
    b = select(tap == V(1.0f), g, V(0.0f));
    c = select(tap == V(2.0f), g, V(0.0f));
    d = select(tap == V(3.0f), g, V(0.0f));
  }
  const float* grad;
  const uint8_t* taps;
};

struct AverageQuads {
  [[gnu::always_inline]] void operator()(int64_t i, int64_t n, V& a, V& b, V& c, V& d) const {
    a = b = c = d = V(0.0f) + load_some<V>(grad + i, n) / divisor;
  }
  const float* grad;
  V divisor;
};

/// Computes the elements of windows of 2 x 2 in rows of n columns, at most kLanes if `kIsPart`,
/// from result `i` on. Rows of dx have `step` elements; those after the windows are zero.
template <typename Quads, bool kIsPart>
void grad_quad_rows(const Quads& quads, int64_t i, int64_t rows, int64_t n, int64_t step,
                    float* dx) {
  const int64_t rest = step - 2 * n;
  for (int64_t h = 0; h < rows; ++h, dx += 2 * step, i += n) {
    for (int64_t o = 0; o < (kIsPart ? 1 : n); o += kLanes) {
      V a, b, c, d;
      quads(i + o, n - o, a, b, c, d);
      store_pairs(a, b, dx + 2 * o, 2 * (n - o));
      store_pairs(c, d, dx + step + 2 * o, 2 * (n - o));
    }
    fill(dx + 2 * n, rest, V(0.0f));
    fill(dx + step + 2 * n, rest, V(0.0f));
  }
}

/// Computes the elements of windows of 2 x 2 that are contiguous (are_flat_quads).
template <typename Quads>
void grad_flat_quads(const Quads& quads, int64_t columns, int64_t results, float* dx) {
  const RowPairs<V> rows(columns);
  for (int64_t o = 0; o < results; o += kLanes, dx += 4 * kLanes) {
    const int64_t n = results - o;
    V a, b, c, d, even, odd, next_even, next_odd;
    quads(o, n, a, b, c, d);
    rows.join(a, c, even, next_even);
    rows.join(b, d, odd, next_odd);
    store_pairs(even, odd, dx, 4 * n);
    store_pairs(next_even, next_odd, dx + 2 * kLanes, 4 * n - 2 * kLanes);
  }
}

template <typename Quads>
void grad_quads(const PoolPlan& plan, const Quads& quads, int64_t planes, float* dx) {
  const int64_t rows = plan.axes[1].y, columns = plan.axes[2].y, step = plan.axes[2].x;
  const int64_t rest = (plan.axes[1].x - 2 * rows) * step;
  planes *= plan.axes[0].x;
  if (are_flat_quads<V>(plan)) return grad_flat_quads(quads, columns, planes * rows * columns, dx);
  const auto grad_rows =
      columns <= kLanes ? grad_quad_rows<Quads, true> : grad_quad_rows<Quads, false>;
  for (int64_t p = 0; p < planes; ++p, dx += 2 * rows * step + rest) {
    grad_rows(quads, p * rows * columns, rows, columns, step, dx);
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

/// Whether window o, which reaches over input position i, has a tap there.
bool has_tap(const ops::PoolAxis& a, int64_t i, int64_t o) {
  return a.dilation == 1 || (i + a.padding - o * a.stride) % a.dilation == 0;
}

/// Computes n elements of residue r of a row of dx from the packed rows of windows that have them.
/// The residue has kTaps taps, or as many according to the plan if kTaps is 0. If `kIsPart`,
/// nothing is written after the n elements.
template <int kTaps, bool kIsPart>
void grad_residue(const PoolPlan& plan, const PoolRows& rows, int64_t r, int64_t n, float* dx) {
  const int32_t* const offset = plan.offset + plan.first_of_residue[r];
  const int64_t taps = kTaps > 0 ? kTaps : plan.first_of_residue[r + 1] - plan.first_of_residue[r];
  for (int64_t j = 0; j < n; j += kLanes) {
    V sum(0.0f);
    for (int64_t i = 0; i < rows.count; ++i) {
#pragma GCC unroll 4
      for (int64_t k = 0; k < taps; ++k) sum = sum + V::load(rows.row[i] + j + offset[k]);
    }
    if (kIsPart)
      store_some(sum, dx + j, n - j);
    else
      sum.store(dx + j);
  }
}

template <bool kIsPart>
void grad_residue(const PoolPlan& plan, const PoolRows& rows, int64_t r, int64_t n, float* dx) {
  switch (plan.first_of_residue[r + 1] - plan.first_of_residue[r]) {
    case 1:
      return grad_residue<1, kIsPart>(plan, rows, r, n, dx);
    case 2:
      return grad_residue<2, kIsPart>(plan, rows, r, n, dx);
    case 3:
      return grad_residue<3, kIsPart>(plan, rows, r, n, dx);
    default:
      return grad_residue<0, kIsPart>(plan, rows, r, n, dx);
  }
}

/// Computes a row of dx from the rows of windows that have its elements.
void grad_row(const PoolPlan& plan, const PoolRows& rows, float* residues, float* dx) {
  const int64_t n = plan.axes[2].x;
  const int64_t stride = plan.axes[2].stride;
  const int64_t step = plan.residue_step;
  if (stride == 1) return grad_residue<true>(plan, rows, 0, n, dx);
  for (int64_t r = 0; r < stride && r < n; ++r) {
    const int64_t count = (n - r + stride - 1) / stride;
    grad_residue<false>(plan, rows, r, count, residues + r * step);
  }
  if (stride == 2) {
    for (int64_t j = 0; j < step; j += kLanes)
      store_pairs(V::load(residues + j), V::load(residues + step + j), dx + 2 * j, n - 2 * j);
  } else {
    for (int64_t r = 0; r < stride && r < n; ++r) {
      for (int64_t j = 0; r + j * stride < n; ++j) dx[r + j * stride] = residues[r * step + j];
    }
  }
}

/// Packs a row of gradients, each divided by the count of its window. Zeros are around it already.
void pack_shares(const PoolPlan& plan, const float* grad, V rows, const float* counts, float* to) {
  const int64_t n = plan.axes[2].y;
  for (int64_t o = 0; o < n; o += kLanes) {
    const V share = load_some<V>(grad + o, n - o) / divisors(plan, rows, counts + o, n - o);
    share.store(to + plan.left + o);
  }
}

/// Computes depth `depth` of a plane of dx. `residues` is workspace for a row, `packed` for a band.
void grad_depth(const PoolPlan& plan, const float* grad, int64_t depth, const float* counts,
                float* residues, float* packed, float* dx) {
  const ops::PoolAxis& deep = plan.axes[0];
  const ops::PoolAxis& height = plan.axes[1];
  const int64_t row_floats = plan.residue_floats;
  const int64_t depth_floats = plan.packed_rows * row_floats;
  const Windows around(deep, depth, depth + 1);
  for (int64_t first = 0; first < height.x; first += plan.band) {
    const int64_t end = first + plan.band < height.x ? first + plan.band : height.x;
    const Windows band(height, first, end);
    float* const origin = packed - around.first * depth_floats - band.first * row_floats;
    for (int64_t d = around.first; d < around.last; ++d) {
      for (int64_t o = band.first; o < band.last; ++o) {
        const V rows(static_cast<float>(plan.shape.count(0, d) * plan.shape.count(1, o)));
        pack_shares(plan, grad + (d * height.y + o) * plan.axes[2].y, rows, counts,
                    origin + d * depth_floats + o * row_floats);
      }
    }
    for (int64_t h = first; h < end; ++h, dx += plan.axes[2].x) {
      PoolRows rows;
      rows.count = 0;
      const Windows row_windows(height, h, h + 1);
      for (int64_t d = around.first; d < around.last; ++d) {
        if (!has_tap(deep, depth, d)) continue;
        for (int64_t o = row_windows.first; o < row_windows.last; ++o) {
          if (has_tap(height, h, o))
            rows.row[rows.count++] = origin + d * depth_floats + o * row_floats;
        }
      }
      grad_row(plan, rows, residues, dx);
    }
  }
}

}  // namespace

using Kernels = PoolKernels<kUnitIsa>;

template <>
void Kernels::max_grad_quads(const PoolPlan& plan, const float* grad, const uint8_t* taps,
                             int64_t planes, float* dx) {
  grad_quads(plan, MaxQuads{grad, taps}, planes, dx);
}

template <>
void Kernels::average_grad(const PoolPlan& plan, const float* grad, int64_t planes, float* dx,
                           float* workspace) {
  if (plan.is_quads) {
    const V divisor(static_cast<float>(plan.shape.divisor > 0 ? plan.shape.divisor : 4));
    return grad_quads(plan, AverageQuads{grad, divisor}, planes, dx);
  }
  // The counts follow the residues of a row, the packed rows follow both.
  float* const counts = workspace + plan.axes[2].stride * plan.residue_step;
  float* const packed = workspace + plan.edge_floats;
  write_counts<V>(plan, counts);
  fill(packed, plan.workspace_floats - plan.edge_floats, V(0.0f));
  for (int64_t p = 0; p < planes; ++p, grad += plan.y_positions) {
    for (int64_t d = 0; d < plan.axes[0].x; ++d, dx += plan.axes[1].x * plan.axes[2].x)
      grad_depth(plan, grad, d, counts, workspace, packed, dx);
  }
}

}  // namespace sluice::cpu::internal
