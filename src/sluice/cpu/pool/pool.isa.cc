#include "sluice/cpu/pool/pool.h"

#include <limits>

#include "sluice/cpu/pool/pool_vectors.h"

namespace sluice::cpu::internal {
namespace {

using V = VectorFor<kUnitIsa>::type;
using Mask = V::Mask;
constexpr int kLanes = V::kLanes;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// Windows that are computed side by side. add() takes the elements with one tap, in ascending
/// order; a quad is the four elements of a window of 2 x 2.
struct Largest {
  using Result = float;
  static constexpr float kPadding = -kInfinity;
  struct RowState {
    RowState(const PoolPlan&, int64_t, int64_t, const PoolRows&) {}
  };
  Largest(const RowState&, const float*, int64_t) {}

  void add(V v, float) {
    has_nan = has_nan | is_nan(v);
    largest = max(v, largest);
  }
  V result() const { return select(has_nan, V(kNan), largest); }

  static void write_edge(const PoolPlan&, float*) {}
  static V quad(V, V a, V b, V c, V d) {
    const V result = max(max(d, c), max(b, a));
    const Mask nan = is_nan(a) | is_nan(b) | is_nan(c) | is_nan(d);
    return select(nan, V(kNan), result);
  }
  static void store(V v, float* y, int64_t n) { store_some(v, y, n); }

  V largest = V(-kInfinity);
  Mask has_nan = Mask::first(0);
};

struct Taps {
  using Result = uint8_t;
  static constexpr float kPadding = -kInfinity;
  struct RowState {
    RowState(const PoolPlan&, int64_t, int64_t, const PoolRows& rows)
        : first(rows.count > 0 ? rows.number[0] : -1.0f) {}
    float first;  // Tap that the first row begins with; -1 without rows.
  };
  // The result of a window of -inf is its first tap inside x. `edge` has that tap's number in its
  // row, or -1.
  Taps(const RowState& row, const float* edge, int64_t) {
    const V in_row = V::load(edge);
    tap = row.first < 0 ? V(0.0f) : select(in_row < V(0.0f), V(0.0f), in_row + V(row.first));
  }

  void add(V v, float number) {
    const Mask better = (v > largest) | is_nan(v);
    largest = select(better, v, largest);
    tap = select(better, V(number), tap);
  }
  V result() const { return tap; }

  static void write_edge(const PoolPlan& plan, float* edge) {
    const ops::PoolAxis& width = plan.axes[2];
    for (int64_t o = 0; o < width.y; ++o) {
      const int64_t first = width.first_tap(o);
      edge[o] = first < width.taps_below(o, width.x) ? static_cast<float>(first) : -1.0f;
    }
  }
  static V quad(V, V a, V b, V c, V d) {
    const Mask second = (b > a) | is_nan(b);
    const Mask fourth = (d > c) | is_nan(d);
    const V top = select(second, b, a);
    const V bottom = select(fourth, d, c);
    return select((bottom > top) | is_nan(bottom), select(fourth, V(3.0f), V(2.0f)),
                  select(second, V(1.0f), V(0.0f)));
  }
  static void store(V v, uint8_t* taps, int64_t n) { store_taps(v, taps, n); }

  V largest = V(-kInfinity);
  V tap;
};

struct Average {
  using Result = float;
  static constexpr float kPadding = 0;
  struct RowState {
    RowState(const PoolPlan& plan, int64_t depth, int64_t height, const PoolRows&)
        : plan(plan),
          rows(static_cast<float>(plan.shape.count(0, depth) * plan.shape.count(1, height))) {}
    const PoolPlan& plan;
    V rows;
  };
  Average(const RowState& row, const float* edge, int64_t n)
      : divisor(divisors(row.plan, row.rows, edge, n)) {}

  void add(V v, float) { sum = sum + v; }
  V result() const { return sum / divisor; }

  static void write_edge(const PoolPlan& plan, float* edge) { write_counts<V>(plan, edge); }
  static V quad(V divisor, V a, V b, V c, V d) { return (V(0.0f) + a + b + c + d) / divisor; }
  static void store(V v, float* y, int64_t n) { store_some(v, y, n); }

  V sum = V(0.0f);
  V divisor;
};

/// Pools windows of 2 x 2 in rows of n columns, at most kLanes if `kIsPart`. Rows of x have `step`
/// elements.
template <typename Pool, bool kIsPart>
void pool_quad_rows(V divisor, const float* x, int64_t step, int64_t rows, int64_t n,
                    typename Pool::Result* y) {
  for (int64_t h = 0; h < rows; ++h, x += 2 * step, y += n) {
    for (int64_t o = 0; o < (kIsPart ? 1 : n); o += kLanes) {
      V a, b, c, d;
      load_pairs(x + 2 * o, 2 * (n - o), a, b);
      load_pairs(x + step + 2 * o, 2 * (n - o), c, d);
      Pool::store(Pool::quad(divisor, a, b, c, d), y + o, n - o);
    }
  }
}

/// Pools windows of 2 x 2 whose elements are contiguous (are_flat_quads).
template <typename Pool>
void pool_flat_quads(V divisor, const float* x, int64_t columns, int64_t results,
                     typename Pool::Result* y) {
  const RowPairs<V> rows(columns);
  for (int64_t o = 0; o < results; o += kLanes, x += 4 * kLanes) {
    const int64_t n = results - o;
    V even, odd, next_even, next_odd, a, b, c, d;
    load_pairs(x, 4 * n, even, odd);
    load_pairs(x + 2 * kLanes, 4 * n - 2 * kLanes, next_even, next_odd);
    rows.split(even, next_even, a, c);
    rows.split(odd, next_odd, b, d);
    Pool::store(Pool::quad(divisor, a, b, c, d), y + o, n);
  }
}

/// Pools windows of 2 x 2 side by side.
template <typename Pool>
void pool_quads(const PoolPlan& plan, const float* x, int64_t planes, typename Pool::Result* y) {
  const int64_t rows = plan.axes[1].y, columns = plan.axes[2].y;
  const int64_t step = plan.axes[2].x, plane = plan.axes[1].x * step;
  const V divisor(static_cast<float>(plan.shape.divisor > 0 ? plan.shape.divisor : 4));
  planes *= plan.axes[0].x;
  if (are_flat_quads<V>(plan))
    return pool_flat_quads<Pool>(divisor, x, columns, planes * rows * columns, y);
  const auto pool_rows =
      columns <= kLanes ? pool_quad_rows<Pool, true> : pool_quad_rows<Pool, false>;
  for (int64_t p = 0; p < planes; ++p, x += plane, y += rows * columns)
    pool_rows(divisor, x, step, rows, columns, y);
}

/// Stores n elements of v, at most kLanes, and padding after them. All lanes are written.
[[gnu::always_inline]] inline void store_padded(V v, V padding, int64_t n, float* to) {
  (n >= kLanes ? v : select(Mask::first(n), v, padding)).store(to);
}

/// Packs a row of x. The padding around the elements of each residue is in `packed` already.
void pack_row(const PoolPlan& plan, V padding, const float* x, float* packed) {
  const int64_t n = plan.axes[2].x;
  const int64_t stride = plan.axes[2].stride;
  float* const first = packed + plan.left;
  if (stride == 1) {
    for (int64_t j = 0; j < n; j += kLanes)
      store_padded(load_some<V>(x + j, n - j), padding, n - j, first + j);
  } else if (stride == 2) {
    // The residue of the even elements comes first or second, or is missing.
    const bool has_both = plan.residues == 2;
    const bool odd_first = plan.residue_of[0] == 1;
    float* const even_at = odd_first ? first + plan.residue_floats : first;
    float* const odd_at = odd_first ? first : first + plan.residue_floats;
    for (int64_t j = 0; 2 * j < n; j += kLanes) {
      V even, odd;
      load_pairs(x + 2 * j, n - 2 * j, even, odd);
      if (has_both || !odd_first) store_padded(even, padding, (n + 1) / 2 - j, even_at + j);
      if (has_both || odd_first) store_padded(odd, padding, n / 2 - j, odd_at + j);
    }
  } else {
    for (int64_t i = 0; i < plan.residues; ++i) {
      float* const to = first + i * plan.residue_floats;
      const float* const from = x + plan.residue_of[i];
      for (int64_t j = 0; plan.residue_of[i] + j * stride < n; ++j) to[j] = from[j * stride];
    }
  }
}

/// Pools a row of windows that are kWidth wide, or as wide according to the plan if kWidth is 0.
template <typename Pool, int kWidth>
void pool_row(const PoolPlan& plan, const typename Pool::RowState& row, const PoolRows& rows,
              const float* edge, typename Pool::Result* y) {
  const int64_t n = plan.axes[2].y;
  const int64_t width = kWidth > 0 ? kWidth : plan.axes[2].kernel;
  for (int64_t o = 0; o < n; o += kLanes) {
    Pool windows(row, edge + o, n - o);
    for (int64_t r = 0; r < rows.count; ++r) {
      const float* const packed = rows.row[r] + o;
#pragma GCC unroll 4
      for (int64_t k = 0; k < width; ++k)
        windows.add(V::load(packed + plan.offset[k]), rows.number[r] + static_cast<float>(k));
    }
    Pool::store(windows.result(), y + o, n - o);
  }
}

/// The rows of x that rows [first, last) of results read in each of some depths.
struct Band {
  Band(const ops::PoolAxis& height, int64_t first, int64_t last) {
    const int64_t above = first * height.stride - height.padding;
    const int64_t below =
        (last - 1) * height.stride - height.padding + (height.kernel - 1) * height.dilation + 1;
    begin = above > 0 ? above : 0;
    end = below < height.x ? below : height.x;
  }
  int64_t begin, end;
};

/// Pools plane x in depth `depth` of y.
template <typename Pool, int kWidth>
void pool_depth(const PoolPlan& plan, const float* x, int64_t depth, typename Pool::Result* y,
                const float* edge, float* packed) {
  const ops::PoolAxis& deep = plan.axes[0];
  const ops::PoolAxis& height = plan.axes[1];
  const ops::PoolAxis& width = plan.axes[2];
  const int64_t row_floats = plan.residues * plan.residue_floats;
  const int64_t depth_floats = plan.packed_rows * row_floats;
  const int64_t first_deep = deep.first_tap(depth), end_deep = deep.taps_below(depth, deep.x);
  const float* const nearest = x + (depth * deep.stride - deep.padding) * height.x * width.x;
  for (int64_t first = 0; first < height.y; first += plan.band) {
    const int64_t last = first + plan.band < height.y ? first + plan.band : height.y;
    const Band band(height, first, last);
    for (int64_t i = first_deep; i < end_deep; ++i) {
      const float* const plane = nearest + i * deep.dilation * height.x * width.x;
      for (int64_t h = band.begin; h < band.end; ++h)
        pack_row(plan, V(Pool::kPadding), plane + h * width.x,
                 packed + i * depth_floats + (h - band.begin) * row_floats);
    }
    for (int64_t o = first; o < last; ++o) {
      PoolRows rows;
      rows.count = 0;
      const int64_t begin = height.first_tap(o), end = height.taps_below(o, height.x);
      const int64_t above = o * height.stride - height.padding - band.begin;
      for (int64_t i = first_deep; i < end_deep; ++i) {
        for (int64_t j = begin; j < end; ++j) {
          rows.row[rows.count] =
              packed + i * depth_floats + (above + j * height.dilation) * row_floats;
          rows.number[rows.count++] = static_cast<float>((i * height.kernel + j) * width.kernel);
        }
      }
      pool_row<Pool, kWidth>(plan, typename Pool::RowState(plan, depth, o, rows), rows, edge,
                             y + o * width.y);
    }
  }
}

/// Returns the largest of n elements, NaN if any is NaN.
float largest_of(const float* x, int64_t n) {
  V largest(-kInfinity);
  Mask nan = Mask::first(0);
  for (int64_t i = 0; i < n; i += kLanes) {
    const V v = select(Mask::first(n - i), load_some<V>(x + i, n - i), V(-kInfinity));
    nan = nan | is_nan(v);
    largest = max(v, largest);
  }
  return fold_lanes(select(nan, V(kNan), largest), [](V a, V b) { return max_or_nan(a, b); });
}

/// Return the maximum and the tap of a window of n contiguous elements.
float whole_max(const float* x, int64_t n) {
  const float largest = largest_of(x, n);
  if (largest != 0) return largest;
  while (*x != 0) ++x;  // The sign is that of the first zero.
  return first_lane(max(V(*x), V(-kInfinity)));
}
int64_t whole_tap(const float* x, int64_t n) {
  const float largest = largest_of(x, n);
  int64_t i = 0;
  if (largest != largest) {
    for (i = n - 1; x[i] == x[i];) --i;
  } else {
    while (x[i] != largest) ++i;
  }
  return i;
}

template <typename Pool>
void pool_planes(const PoolPlan& plan, const float* x, int64_t planes, typename Pool::Result* y,
                 float* workspace) {
  if (plan.is_quads) return pool_quads<Pool>(plan, x, planes, y);
  Pool::write_edge(plan, workspace);
  fill(workspace + plan.edge_floats, plan.workspace_floats - plan.edge_floats, V(Pool::kPadding));
  const int64_t depth_results = plan.axes[1].y * plan.axes[2].y;
  const int64_t width = plan.axes[2].kernel;
  const auto pool = width == 2   ? pool_depth<Pool, 2>
                    : width == 3 ? pool_depth<Pool, 3>
                                 : pool_depth<Pool, 0>;
  for (int64_t p = 0; p < planes; ++p, x += plan.x_positions) {
    for (int64_t d = 0; d < plan.axes[0].y; ++d, y += depth_results)
      pool(plan, x, d, y, workspace, workspace + plan.edge_floats);
  }
}

}  // namespace

using Kernels = PoolKernels<kUnitIsa>;

template <>
void Kernels::max(const PoolPlan& plan, const float* x, int64_t planes, float* y,
                  float* workspace) {
  if (!plan.is_whole) return pool_planes<Largest>(plan, x, planes, y, workspace);
  for (int64_t p = 0; p < planes; ++p, x += plan.x_positions) y[p] = whole_max(x, plan.x_positions);
}

template <>
void Kernels::taps(const PoolPlan& plan, const float* x, int64_t planes, uint8_t* taps,
                   float* workspace) {
  if (!plan.is_whole) return pool_planes<Taps>(plan, x, planes, taps, workspace);
  for (int64_t p = 0; p < planes; ++p, x += plan.x_positions)
    taps[p] = static_cast<uint8_t>(whole_tap(x, plan.x_positions));
}

template <>
void Kernels::average(const PoolPlan& plan, const float* x, int64_t planes, float* y,
                      float* workspace) {
  pool_planes<Average>(plan, x, planes, y, workspace);
}

}  // namespace sluice::cpu::internal
