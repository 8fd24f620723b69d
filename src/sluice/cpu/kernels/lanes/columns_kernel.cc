#include <algorithm>
#include <cmath>

#include "sluice/base/reduce.h"
#include "sluice/cpu/fused/reduce_view.h"
#include "sluice/cpu/kernels/kernel_list.h"
#include "sluice/cpu/kernels/lanes/lane_cut.h"
#include "sluice/cpu/simd/vector_kernels.h"
#include "sluice/ops/functors.h"
#include "sluice/ops/indexing.h"
#include "sluice/ops/reduction_functors.h"
#include "sluice/ops/reductions.h"
#include "sluice/ops/softmax.h"

namespace sluice::cpu {
namespace {

namespace functor = ops::functor;

constexpr int64_t kColumnsAtOnce = 64;  // Columns that are computed at once.
constexpr int64_t kTileRows = 16;       // Rows of a tile between two steps of a reduction.
constexpr int64_t kRowPart = 1024;      // Elements of a row between two steps of a reduction.

// The softmax family along an axis with elements after it, whose lanes are columns, and logarithms
// of sums along rows or columns.
enum class LaneOp { kSoftmax, kLogSoftmax, kSoftmaxGrad, kLogSoftmaxGrad, kLogSum, kLogSumExp };

struct LaneKernel : LaneCut {
  LaneOp op = LaneOp::kSoftmax;
  int64_t extent = 0;  // Elements of a lane.

  bool reduces() const { return op == LaneOp::kLogSum || op == LaneOp::kLogSumExp; }
  int operands() const {
    return op == LaneOp::kSoftmaxGrad || op == LaneOp::kLogSoftmaxGrad ? 2 : 1;
  }
};

std::optional<LaneOp> lane_op(const OpDef& def) {
  const std::pair<const OpDef*, LaneOp> table[] = {
      {&ops::softmax_def(), LaneOp::kSoftmax},
      {&ops::log_softmax_def(), LaneOp::kLogSoftmax},
      {&ops::softmax_grad_def(), LaneOp::kSoftmaxGrad},
      {&ops::log_softmax_grad_def(), LaneOp::kLogSoftmaxGrad},
      {&ops::reduce_log_sum_def(), LaneOp::kLogSum},
      {&ops::reduce_log_sum_exp_def(), LaneOp::kLogSumExp}};
  for (const auto& [d, op] : table) {
    if (d == &def) return op;
  }
  return std::nullopt;
}

std::optional<LaneKernel> lane_kernel(const OpView& op) {
  const auto kind = lane_op(op.def());
  if (!kind || op.input(0).dtype != f32 || op.output(0).dtype != f32) return std::nullopt;
  LaneKernel k;
  k.op = *kind;
  const Shape& x = op.input(0).shape;
  int64_t outer = 1, inner = 1;
  if (k.reduces()) {
    const auto view = reduce_view(OpView(ops::reduce_sum_def(), op.attrs(), {&op.input(0), 1}));
    if (!view || view->runs != 1) return std::nullopt;
    outer = view->columns ? view->matrices : view->results;
    inner = view->columns ? view->results / view->matrices : 1;
    k.extent = view->extent;
  } else {
    const int rank = ops::axes_of(x);
    const ops::AxisSplit split(
        x, normalize_axis(op.options<ops::AxisOptions>().axis, rank, op.def().name));
    outer = split.outer;
    inner = split.inner;
    k.extent = split.extent;
  }
  if (x.elements() == 0 || k.extent > kReduceChunk) return std::nullopt;
  static_cast<LaneCut&>(k) = LaneCut(outer, inner, k.extent);
  return k;
}

template <typename F>
void map_rows(const F& f, std::initializer_list<MapInput> inputs, MapOutput output, int64_t rows,
              int64_t n) {
  map_kernel<F>(current_isa())(&f, inputs.begin(), &output, rows, n);
}

constexpr float kOne = 1.0f;
constexpr MapInput kEveryOne{&kOne, 0, 0};

// At most kColumnsAtOnce columns of `inner` columns. Rows of tensors are `inner` elements apart.
struct Tile {
  int64_t extent, inner, cols;

  MapInput rows(const float* x, int64_t row = 0) const { return {x + row * inner, 1, inner}; }
  MapOutput out(float* y, int64_t row = 0) const { return {y + row * inner, inner}; }
  static MapInput each(const float* values) { return {values, 1, 0}; }

  // Sums over the rows what compute(first, rows, block) stores in `rows` rows of kColumnsAtOnce
  // floats.
  template <typename Compute>
  void sum(float* y, Compute compute) const {
    alignas(64) float block[kTileRows * kColumnsAtOnce], partial[kReduceLanes * kColumnsAtOnce];
    reduce_begin(ReduceOp::kSum, cols, partial, kColumnsAtOnce);
    for (int64_t r = 0; r < extent; r += kTileRows) {
      const int64_t count = std::min(kTileRows, extent - r);
      compute(r, count, block);
      reduce_more_columns(ReduceOp::kSum, block, r, count, cols, kColumnsAtOnce, partial,
                          kColumnsAtOnce);
    }
    reduce_end(ReduceOp::kSum, extent, cols, partial, kColumnsAtOnce, y);
  }
  // Calls compute(first, rows, block) with memory for `rows` rows of kColumnsAtOnce floats.
  template <typename Compute>
  void for_rows(Compute compute) const {
    alignas(64) float block[kTileRows * kColumnsAtOnce];
    for (int64_t r = 0; r < extent; r += kTileRows)
      compute(r, std::min(kTileRows, extent - r), block);
  }
  // Σ exp(x - top).
  void sum_exp(const float* x, const float* top, float* y) const {
    sum(y, [&](int64_t r, int64_t count, float* block) {
      map_rows(functor::LogSumExpGrad{}, {kEveryOne, rows(x, r), each(top)},
               {block, kColumnsAtOnce}, count, cols);
    });
  }
};

// top + log(total), or top where it is infinite.
void finish_log_sum_exp(const float* top, float* total, int64_t n) {
  map1(functor::Log{}, total, total, n);
  map2(functor::Add{}, {top}, {total}, total, n);
  for (int64_t i = 0; i < n; ++i) {
    if (std::isinf(top[i])) total[i] = top[i];
  }
}

void run_tile(LaneOp op, const Tile& t, const float* a, const float* b, float* y) {
  alignas(64) float top[kColumnsAtOnce], total[kColumnsAtOnce];
  const auto find_top = [&] { reduce_columns(ReduceOp::kMax, a, t.extent, t.cols, t.inner, top); };
  switch (op) {
    case LaneOp::kSoftmax:
      find_top();
      map_rows(functor::LogSumExpGrad{}, {kEveryOne, t.rows(a), Tile::each(top)}, t.out(y),
               t.extent, t.cols);
      reduce_columns(ReduceOp::kSum, y, t.extent, t.cols, t.inner, total);
      return map_rows(functor::Div{}, {t.rows(y), Tile::each(total)}, t.out(y), t.extent, t.cols);
    case LaneOp::kLogSoftmax:
      find_top();
      t.sum_exp(a, top, total);
      map1(functor::Log{}, total, total, t.cols);
      map_rows(functor::Sub{}, {t.rows(a), Tile::each(top)}, t.out(y), t.extent, t.cols);
      return map_rows(functor::Sub{}, {t.rows(y), Tile::each(total)}, t.out(y), t.extent, t.cols);
    case LaneOp::kSoftmaxGrad:
      t.sum(total, [&](int64_t r, int64_t count, float* block) {
        map_rows(functor::Mul{}, {t.rows(a, r), t.rows(b, r)}, {block, kColumnsAtOnce}, count,
                 t.cols);
      });
      return t.for_rows([&](int64_t r, int64_t count, float* block) {
        map_rows(functor::Sub{}, {t.rows(a, r), Tile::each(total)}, {block, kColumnsAtOnce}, count,
                 t.cols);
        map_rows(functor::Mul{}, {t.rows(b, r), {block, 1, kColumnsAtOnce}}, t.out(y, r), count,
                 t.cols);
      });
    case LaneOp::kLogSoftmaxGrad:
      reduce_columns(ReduceOp::kSum, a, t.extent, t.cols, t.inner, total);
      return t.for_rows([&](int64_t r, int64_t count, float* block) {
        map_rows(functor::Exp{}, {t.rows(b, r)}, {block, kColumnsAtOnce}, count, t.cols);
        map_rows(functor::Mul{}, {{block, 1, kColumnsAtOnce}, Tile::each(total)},
                 {block, kColumnsAtOnce}, count, t.cols);
        map_rows(functor::Sub{}, {t.rows(a, r), {block, 1, kColumnsAtOnce}}, t.out(y, r), count,
                 t.cols);
      });
    case LaneOp::kLogSum:
      reduce_columns(ReduceOp::kSum, a, t.extent, t.cols, t.inner, y);
      return map1(functor::Log{}, y, y, t.cols);
    case LaneOp::kLogSumExp:
      find_top();
      t.sum_exp(a, top, y);
      return finish_log_sum_exp(top, y, t.cols);
  }
}

// Logarithms of the sums of `count` <= kColumnsAtOnce rows.
void run_log_rows(LaneOp op, const float* x, int64_t count, int64_t n, float* y) {
  alignas(64) float top[kColumnsAtOnce], block[kRowPart], partial[kReduceLanes];
  if (op == LaneOp::kLogSum) {
    reduce_rows(ReduceOp::kSum, x, count, n, n, y);
    return map1(functor::Log{}, y, y, count);
  }
  reduce_rows(ReduceOp::kMax, x, count, n, n, top);
  // Several short rows at once, or parts of a long one.
  const int64_t at_once = kRowPart / n;
  for (int64_t row = 0; at_once > 0 && row < count; row += at_once) {
    const int64_t some = std::min(at_once, count - row);
    map_rows(functor::LogSumExpGrad{}, {kEveryOne, {x + row * n, 1, n}, {top + row, 0, 1}},
             {block, n}, some, n);
    reduce_rows(ReduceOp::kSum, block, some, n, n, y + row);
  }
  for (int64_t row = 0; at_once == 0 && row < count; ++row) {
    reduce_begin(ReduceOp::kSum, 1, partial, 1);
    for (int64_t i = 0; i < n; i += kRowPart) {
      const int64_t some = std::min(kRowPart, n - i);
      map3(functor::LogSumExpGrad{}, kEveryOne, {x + row * n + i}, {top + row, 0}, block, some);
      reduce_more_row(ReduceOp::kSum, block, some, partial);
    }
    reduce_end(ReduceOp::kSum, n, 1, partial, 1, y + row);
  }
  finish_log_sum_exp(top, y, count);
}

void run_columns(const void* state, const runtime::KernelBlock& block, int64_t task) {
  const auto& k = *static_cast<const LaneKernel*>(state);
  const auto* const a = reinterpret_cast<const float*>(block.operands[0]);
  const auto* const b = k.operands() == 1 ? a : reinterpret_cast<const float*>(block.operands[1]);
  auto* const y = reinterpret_cast<float*>(block.operands[k.operands()]);
  if (k.reduces() && k.inner == 1) {
    const int64_t end = std::min(k.outer, (task + 1) * k.per_task);
    for (int64_t row = task * k.per_task; row < end; row += kColumnsAtOnce)
      run_log_rows(k.op, a + row * k.extent, std::min(kColumnsAtOnce, end - row), k.extent,
                   y + row);
    return;
  }
  k.for_each_group(task, [&](const LaneGroup& g) {
    for (int64_t c = g.begin; c < g.end; c += kColumnsAtOnce) {
      const int64_t at = g.outer * k.extent * k.inner + c;
      const int64_t result = k.reduces() ? g.outer * k.inner + c : at;
      run_tile(k.op, {k.extent, k.inner, std::min(kColumnsAtOnce, g.end - c)}, a + at, b + at,
               y + result);
    }
  });
}

KernelChoice choose_columns(const OpView& op) {
  const LaneKernel k = *lane_kernel(op);
  KernelChoice choice{.tasks = k.tasks};
  if (k.tasks == 1) return choice;
  for (int i = 0; i < k.operands(); ++i) k.add_range(k.extent, 4, choice);
  k.add_range(k.reduces() ? 1 : k.extent, 4, choice);
  return choice;
}

}  // namespace

CpuKernel columns_kernel() {
  return {"cpu.columns", [](const OpView& op) { return lane_kernel(op).has_value(); },
          choose_columns,
          [](std::shared_ptr<const OpRecord> op) {
            return runtime::BoundKernel{run_columns,
                                        std::make_shared<LaneKernel>(*lane_kernel(op->view()))};
          }};
}

}  // namespace sluice::cpu
