#include <algorithm>
#include <bit>
#include <cstring>

#include "sluice/base/checked.h"
#include "sluice/cpu/kernels/kernel_list.h"
#include "sluice/cpu/kernels/lanes/lane_cut.h"
#include "sluice/cpu/move/indices.h"
#include "sluice/cpu/simd/vector_kernels.h"
#include "sluice/ops/cumsum.h"
#include "sluice/ops/functors.h"
#include "sluice/ops/indexing.h"
#include "sluice/ops/sort.h"
#include "sluice/ops/take_along_axis.h"

namespace sluice::cpu {
namespace {

// Operators on lanes.
struct Lanes : LaneCut {
  explicit Lanes(const OpView& op) : dtype(op.input(0).dtype), width(size_of(dtype)) {
    const auto split_along = [&](int64_t axis) {
      const Shape& x = op.input(0).shape;
      const Shape& y = op.output(0).shape;
      const int a = normalize_axis(axis, ops::axes_of(x), op.def().name);
      const ops::AxisSplit before(x, a);
      in = before.extent;
      out = ops::AxisSplit(y, a).extent;
      static_cast<LaneCut&>(*this) = LaneCut(before.outer, before.inner, std::max(in, out));
    };
    if (&op.def() == &ops::cumprod_def() || &op.def() == &ops::cumprod_grad_def()) {
      split_along(op.options<ops::CumprodOptions>().axis);
    } else if (&op.def() == &ops::cumsum_def()) {
      const auto o = op.options<ops::CumsumOptions>();
      exclusive = o.exclusive;
      reverse = o.reverse;
      split_along(o.axis);
    } else if (&op.def() == &ops::sort_def()) {
      const auto o = op.options<ops::SortOptions>();
      reverse = o.descending;
      split_along(o.axis);
    } else if (&op.def() == &ops::add_along_axis_def()) {
      split_along(op.options<ops::AddAlongAxisOptions>().axis);
      indices = Indices(op.input(1), out);
    } else {
      const auto o = op.options<ops::TakeAlongAxisOptions>();
      split_along(o.axis);
      indices = Indices(op.input(1), in);
      outside = element_outside(dtype, o.zero_out_of_range);
    }
  }

  DType dtype;
  int64_t width;    // Bytes of an element.
  int64_t in = 1;   // Elements of a lane of the operand.
  int64_t out = 1;  // Elements of a lane of the result.
  bool exclusive = false, reverse = false;
  Indices indices;
  std::array<std::byte, 8> outside{};  // The element that an index outside yields.
};

// Contiguous lanes that are combined at once: an addition waits four cycles for the last one.
constexpr int64_t kLanesAtOnce = 4;

// How elements are combined. Integers have the type uint32_t, so that they wrap around.
struct Sums {
  using Functor = ops::functor::Add;
  static constexpr int kIdentity = 0;
  template <typename E>
  static E combine(E a, E b) {
    return a + b;
  }
};
struct Products {
  using Functor = ops::functor::Mul;
  static constexpr int kIdentity = 1;
  template <typename E>
  static E combine(E a, E b) {
    return a * b;
  }
};

// Combines kCount contiguous lanes, from `outer` on.
template <typename Op, int64_t kCount, typename E>
void cumulate_lanes(const Lanes& l, int64_t outer, const E* x, E* y) {
  E results[kCount];
  std::fill_n(results, kCount, E{Op::kIdentity});
  const int64_t n = l.in, step = l.reverse ? -1 : 1;
  const bool exclusive = l.exclusive;
  int64_t at = outer * n + (l.reverse ? n - 1 : 0);
  for (int64_t i = 0; i < n; ++i, at += step) {
#pragma GCC unroll 4
    for (int64_t k = 0; k < kCount; ++k) {
      const E before = results[k];
      results[k] = Op::combine(results[k], x[at + k * n]);
      y[at + k * n] = exclusive ? before : results[k];
    }
  }
}

template <typename Op, typename E>
void cumulate_rows(const Lanes& l, int64_t begin, int64_t end, const E* x, E* y) {
  for (; begin + kLanesAtOnce <= end; begin += kLanesAtOnce)
    cumulate_lanes<Op, kLanesAtOnce>(l, begin, x, y);
  for (; begin < end; ++begin) cumulate_lanes<Op, 1>(l, begin, x, y);
}

template <typename Op, typename E>
void cumulate_columns(const Lanes& l, const LaneGroup& g, const E* x, E* y) {
  const int64_t n = g.end - g.begin;
  const int64_t step = l.reverse ? -l.inner : l.inner;
  const int64_t first = (g.outer * l.in + (l.reverse ? l.in - 1 : 0)) * l.inner + g.begin;
  if (l.in == 0) return;
  // Row i of the result is the row before combined with a row of x.
  const auto combine = [&](const E* a, const E* b, E* to) {
    if constexpr (std::is_same_v<E, float>) {
      map2(typename Op::Functor{}, {a}, {b}, to, n);
    } else {
      for (int64_t i = 0; i < n; ++i) to[i] = Op::combine(a[i], b[i]);
    }
  };
  // The result of nothing is the identity, and a sum begins with 0 + x, which is +0 for x = -0.
  std::fill_n(y + first, n, E{Op::kIdentity});
  if (!l.exclusive) combine(y + first, x + first, y + first);
  for (int64_t i = 1, at = first + step; i < l.in; ++i, at += step)
    combine(y + at - step, l.exclusive ? x + at - step : x + at, y + at);
}

template <typename Op, typename E>
void cumulate(const Lanes& l, const runtime::KernelBlock& block, int64_t task) {
  const E* const x = reinterpret_cast<const E*>(block.operands[0]);
  E* const y = reinterpret_cast<E*>(block.operands[1]);
  if (l.inner == 1)
    return cumulate_rows<Op>(l, task * l.per_task, std::min(l.outer, (task + 1) * l.per_task), x,
                             y);
  l.for_each_group(task, [&](const LaneGroup& g) { cumulate_columns<Op>(l, g, x, y); });
}

template <typename Op>
void run_cumulative(const void* state, const runtime::KernelBlock& block, int64_t task) {
  const auto& l = *static_cast<const Lanes*>(state);
  if (l.dtype == f32) return cumulate<Op, float>(l, block, task);
  cumulate<Op, uint32_t>(l, block, task);
}

constexpr int64_t kProductLanes = 64;  // Lanes whose gradients are computed at once.

// The gradient of a cumulative product: see its reference kernel.
void run_cumprod_grad(const void* state, const runtime::KernelBlock& block, int64_t task) {
  const auto& l = *static_cast<const Lanes*>(state);
  const auto* const xs = reinterpret_cast<const float*>(block.operands[0]);
  const auto* const gs = reinterpret_cast<const float*>(block.operands[1]);
  auto* const results = reinterpret_cast<float*>(block.operands[2]);
  l.for_each_group(task, [&](const LaneGroup& g) {
    for (int64_t begin = g.begin; begin < g.end; begin += kProductLanes) {
      const int64_t lanes = std::min(kProductLanes, g.end - begin);
      const int64_t first = g.outer * l.in * l.inner + begin;
      float before[kProductLanes], sum[kProductLanes] = {};
      std::fill_n(before, lanes, 1.0f);
      for (int64_t i = 0; i < l.in; ++i) {
        const float* const x = xs + first + i * l.inner;
        float* const dx = results + first + i * l.inner;
        for (int64_t n = 0; n < lanes; ++n) {
          dx[n] = before[n];
          before[n] *= x[n];
        }
      }
      for (int64_t i = l.in; i-- > 0;) {
        const int64_t row = first + i * l.inner;
        for (int64_t n = 0; n < lanes; ++n) {
          const float rest = i + 1 < l.in ? sum[n] * xs[row + l.inner + n] : 0.0f;
          sum[n] = gs[row + n] + rest;
          results[row + n] *= sum[n];
        }
      }
    }
  });
}

template <typename E>
void take(const Lanes& l, const LaneGroup& g, const runtime::KernelBlock& block) {
  const auto* const x = reinterpret_cast<const E*>(block.operands[0]);
  auto* const y = reinterpret_cast<E*>(block.operands[2]);
  E outside;
  std::memcpy(&outside, l.outside.data(), sizeof outside);
  if (l.inner == 1) {
    const E* const lane = x + g.outer * l.in;
    return l.indices.for_positions(block.operands[1], g.outer * l.out, l.out,
                                   [&, to = y + g.outer * l.out](int64_t i, int64_t at) {
                                     to[i] = at >= 0 ? lane[at] : outside;
                                   });
  }
  for (int64_t i = 0; i < l.out; ++i) {
    const int64_t row = (g.outer * l.out + i) * l.inner;
    for (int64_t n = g.begin; n < g.end; ++n) {
      const int64_t at = l.indices.position(block.operands[1], row + n);
      y[row + n] = at >= 0 ? x[(g.outer * l.in + at) * l.inner + n] : outside;
    }
  }
}

void run_take(const void* state, const runtime::KernelBlock& block, int64_t task) {
  const auto& l = *static_cast<const Lanes*>(state);
  l.for_each_group(task, [&](const LaneGroup& g) {
    if (l.width == 4) return take<uint32_t>(l, g, block);
    if (l.width == 2) return take<uint16_t>(l, g, block);
    take<uint8_t>(l, g, block);
  });
}

void run_add(const void* state, const runtime::KernelBlock& block, int64_t task) {
  const auto& l = *static_cast<const Lanes*>(state);
  const auto* const x = reinterpret_cast<const float*>(block.operands[0]);
  auto* const y = reinterpret_cast<float*>(block.operands[2]);
  l.for_each_group(task, [&](const LaneGroup& g) {
    for (int64_t i = 0; i < l.out; ++i)
      std::fill_n(y + (g.outer * l.out + i) * l.inner + g.begin, g.end - g.begin, 0.0f);
    for (int64_t i = 0; i < l.in; ++i) {
      const int64_t row = (g.outer * l.in + i) * l.inner;
      for (int64_t n = g.begin; n < g.end; ++n) {
        const int64_t at = l.indices.position(block.operands[1], row + n);
        if (at >= 0) y[(g.outer * l.out + at) * l.inner + n] += x[row + n];
      }
    }
  });
}

// Returns a number whose order is that of the elements: equal for equal elements, the largest for
// each NaN.
uint32_t key_of(DType dtype, const std::byte* element) {
  uint32_t bits = 0;
  if (dtype == u8) return static_cast<uint8_t>(*element);
  if (is_float(dtype)) {
    const uint32_t infinity = dtype == f16 ? 0x7c000000u : 0x7f800000u;
    if (dtype == f32) {
      std::memcpy(&bits, element, 4);
    } else {
      uint16_t half;
      std::memcpy(&half, element, 2);
      bits = uint32_t{half} << 16;
    }
    const uint32_t size = bits & 0x7fffffffu;
    if (size > infinity) return ~0u;
    if (size == 0) bits = 0;
    return bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
  }
  std::memcpy(&bits, element, 4);
  return dtype == i32 ? bits ^ 0x80000000u : bits;
}

void run_sort(const void* state, const runtime::KernelBlock& block, int64_t task) {
  const auto& l = *static_cast<const Lanes*>(state);
  // A key and a position for each element of a lane: no two are equal.
  auto* const order = reinterpret_cast<uint64_t*>(block.workspace);
  auto* const indices = reinterpret_cast<int32_t*>(block.operands[2]);
  l.for_each_group(task, [&](const LaneGroup& g) {
    for (int64_t n = g.begin; n < g.end; ++n) {
      const int64_t first = g.outer * l.in * l.inner + n;
      const std::byte* const x = block.operands[0] + first * l.width;
      std::byte* y = block.operands[1] + first * l.width;
      const int64_t step = l.inner * l.width;
      for (int64_t i = 0; i < l.in; ++i) {
        const uint32_t key = key_of(l.dtype, x + i * step);
        order[i] = uint64_t{l.reverse ? ~key : key} << 32 | static_cast<uint32_t>(i);
      }
      std::sort(order, order + l.in);
      for (int64_t i = 0; i < l.in; ++i, y += step) {
        const auto from = static_cast<uint32_t>(order[i]);
        std::memcpy(y, x + from * step, static_cast<size_t>(l.width));
        indices[first + i * l.inner] = static_cast<int32_t>(from);
      }
    }
  });
}

bool supports_lanes(const OpView& op) {
  const DType dtype = op.input(0).dtype;
  if (&op.def() == &ops::cumsum_def() || &op.def() == &ops::cumprod_def())
    return dtype == f32 || is_integer(dtype);
  if (&op.def() == &ops::add_along_axis_def() || &op.def() == &ops::cumprod_grad_def())
    return dtype == f32;
  return &op.def() == &ops::take_along_axis_def() || &op.def() == &ops::sort_def();
}

KernelChoice choose_lanes(const OpView& op) {
  const Lanes l(op);
  KernelChoice choice{.tasks = l.tasks};
  if (&op.def() == &ops::sort_def()) choice.workspace_bytes = l.in * 8;
  if (l.tasks == 1) return choice;
  l.add_range(l.in, l.width, choice);
  if (op.inputs() == 2)
    l.add_range(&op.def() == &ops::add_along_axis_def() ? l.in : l.out, 4, choice);
  l.add_range(l.out, l.width, choice);
  if (&op.def() == &ops::sort_def()) l.add_range(l.out, 4, choice);
  return choice;
}

runtime::BoundKernel bind_lanes(std::shared_ptr<const OpRecord> op) {
  const OpDef& def = op->view().def();
  return {&def == &ops::cumsum_def()           ? run_cumulative<Sums>
          : &def == &ops::cumprod_def()        ? run_cumulative<Products>
          : &def == &ops::cumprod_grad_def()   ? run_cumprod_grad
          : &def == &ops::sort_def()           ? run_sort
          : &def == &ops::add_along_axis_def() ? run_add
                                               : run_take,
          std::make_shared<Lanes>(op->view())};
}

}  // namespace

CpuKernel lanes_kernel() { return {"cpu.lanes", supports_lanes, choose_lanes, bind_lanes}; }

}  // namespace sluice::cpu
