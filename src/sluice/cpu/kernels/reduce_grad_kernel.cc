#include <algorithm>

#include "sluice/base/checked.h"
#include "sluice/cpu/fused/reduce_view.h"
#include "sluice/cpu/kernels/kernel_list.h"
#include "sluice/cpu/kernels/tasks.h"
#include "sluice/cpu/simd/vector_kernels.h"
#include "sluice/ops/functors.h"
#include "sluice/ops/reduction_functors.h"
#include "sluice/ops/reduction_grads.h"

namespace sluice::cpu {
namespace {

constexpr int64_t kGradLanesAtOnce = 512;
constexpr int64_t kMaxCount = 1 << 24;  // f32 counts ties exactly up to here.

// How the gradient of a lane depends on its operands: a factor of the lane, and a functor of
// ops/reduction_functors.h.
struct Rule {
  enum class Factor { kGrad, kGradOfMean, kGradOfLogSum, kGradOfTies };
  const OpDef& (*def)();
  Factor factor;
  MapFn (*functor)(Isa);
  bool reads_x, reads_y;
};

const Rule* rule_of(const OpDef& def) {
  using Factor = Rule::Factor;
  static const Rule kRules[] = {
      {ops::reduce_mean_grad_def, Factor::kGradOfMean, map_kernel<ops::functor::LaneFactor>, false,
       false},
      {ops::reduce_log_sum_grad_def, Factor::kGradOfLogSum, map_kernel<ops::functor::LaneFactor>,
       false, true},
      {ops::reduce_max_grad_def, Factor::kGradOfTies, map_kernel<ops::functor::TieGrad>, true,
       true},
      {ops::reduce_min_grad_def, Factor::kGradOfTies, map_kernel<ops::functor::TieGrad>, true,
       true},
      {ops::reduce_l1_grad_def, Factor::kGrad, map_kernel<ops::functor::L1Grad>, true, false},
      {ops::reduce_l2_grad_def, Factor::kGrad, map_kernel<ops::functor::L2Grad>, true, true},
      {ops::reduce_log_sum_exp_grad_def, Factor::kGrad, map_kernel<ops::functor::LogSumExpGrad>,
       true, true},
      {ops::reduce_sum_square_grad_def, Factor::kGrad, map_kernel<ops::functor::SumSquareGrad>,
       true, false}};
  for (const Rule& rule : kRules) {
    if (&def == &rule.def()) return &rule;
  }
  return nullptr;
}

// The gradient of a reduction of rows, or of the columns of some matrices. A task has some rows,
// some matrices, or some columns of one matrix.
struct ReduceGrad {
  const Rule* rule = nullptr;
  bool columns = false;
  int64_t extent = 1;    // Elements of a lane.
  int64_t results = 1;   // Lanes.
  int64_t matrices = 1;  // Matrices whose columns are lanes.
  int64_t per_task = 1;  // Rows, columns, or columns of whole matrices.
  int64_t tasks() const { return ceil_div(results, per_task); }
  int64_t cols() const { return results / matrices; }
};

std::optional<ReduceGrad> reduce_grad_of(const OpView& op) {
  ReduceGrad g;
  g.rule = rule_of(op.def());
  if (g.rule == nullptr || op.output(0).dtype != f32) return std::nullopt;
  const auto o = op.options<ops::ReduceGradOptions>();
  const Attrs mean = to_attrs(ops::ReduceOptions{.axes = o.axes, .keepdims = o.keepdims});
  const TensorSpec x{o.shape, f32, {}};
  const auto view = reduce_view(OpView(ops::reduce_mean_def(), mean, {&x, 1}));
  if (!view || view->runs != 1 || view->extent == 0) return std::nullopt;
  if (g.rule->factor == Rule::Factor::kGradOfTies && view->extent > kMaxCount) return std::nullopt;
  g.columns = view->columns;
  g.extent = view->extent;
  g.results = view->results;
  g.matrices = view->matrices;
  g.per_task = rows_per_task(g.results, g.extent);
  if (g.columns) {
    g.per_task = round_up(g.per_task, 16);
    // Several matrices are cut into whole matrices.
    if (g.matrices > 1) g.per_task = round_up(g.per_task, g.cols());
  }
  return g;
}

// Some lanes, which are rows or columns: their operands, and the strides from lane to lane and from
// element to element.
struct GradLanes {
  const float* grad;
  const float* x;
  const float* y;
  float* dx;
  int64_t count;
};

// Runs a functor on (f, x, y). `f` has a value for each lane.
void map_lanes(const ReduceGrad& g, MapFn functor, const GradLanes& l, const float* f, float* to,
               bool accumulates) {
  const int64_t n = g.extent;
  // An operand that is not read is any valid array.
  const float* const x = l.x == nullptr ? f : l.x;
  const float* const y = l.y == nullptr ? f : l.y;
  if (g.columns) {
    const int64_t step = g.cols();
    const MapInput inputs[] = {{f, 1, 0}, {x, 1, l.x == nullptr ? 0 : step}, {y, 1, 0}};
    const MapOutput output{to, accumulates ? 0 : step};
    functor(nullptr, inputs, &output, n, l.count);
  } else {
    const MapInput inputs[] = {
        {f, 0, 1}, {x, l.x == nullptr ? 0 : 1, l.x == nullptr ? 1 : n}, {y, 0, 1}};
    const MapOutput output{to, n};
    functor(nullptr, inputs, &output, l.count, n);
  }
}

// Counts the elements of each lane that tie with y.
void count_ties(const ReduceGrad& g, const GradLanes& l, float* counts) {
  std::fill_n(counts, l.count, 0.0f);
  if (g.columns)
    return map_lanes(g, map_kernel<ops::functor::CountTies>(current_isa()), l, counts, counts,
                     true);
  // The result's memory holds the ties of each row until they are added.
  map_lanes(g, map_kernel<ops::functor::Tie>(current_isa()), l, counts, l.dx, false);
  reduce_rows(ReduceOp::kSum, l.dx, l.count, g.extent, g.extent, counts);
}

void run_lanes(const ReduceGrad& g, const GradLanes& l) {
  alignas(64) float factors[kGradLanesAtOnce];
  const auto n = static_cast<float>(g.extent);
  const float* factor = factors;
  switch (g.rule->factor) {
    case Rule::Factor::kGrad:
      factor = l.grad;
      break;
    case Rule::Factor::kGradOfMean:
      for (int64_t i = 0; i < l.count; ++i) factors[i] = l.grad[i] / n;
      break;
    case Rule::Factor::kGradOfLogSum:
      map1(ops::functor::Neg{}, l.y, factors, l.count);
      map1(ops::functor::Exp{}, factors, factors, l.count);
      map2(ops::functor::Mul{}, {l.grad}, {factors}, factors, l.count);
      break;
    case Rule::Factor::kGradOfTies:
      count_ties(g, l, factors);
      for (int64_t i = 0; i < l.count; ++i) factors[i] = l.grad[i] / factors[i];
      break;
  }
  map_lanes(g, g.rule->functor(current_isa()), l, factor, l.dx, false);
}

void run_reduce_grad(const void* state, const runtime::KernelBlock& block, int64_t task) {
  const auto& g = *static_cast<const ReduceGrad*>(state);
  const auto* const grad = reinterpret_cast<const float*>(block.operands[0]);
  const float *x = nullptr, *y = nullptr;
  int64_t operand = 1;
  if (g.rule->reads_x) x = reinterpret_cast<const float*>(block.operands[operand++]);
  if (g.rule->reads_y) y = reinterpret_cast<const float*>(block.operands[operand++]);
  auto* const dx = reinterpret_cast<float*>(block.operands[operand]);
  const int64_t end = std::min(g.results, (task + 1) * g.per_task);
  for (int64_t lane = task * g.per_task; lane < end;) {
    int64_t count = std::min(kGradLanesAtOnce, end - lane), offset = lane * g.extent;
    if (g.columns) {
      const int64_t col = lane % g.cols();
      count = std::min(count, g.cols() - col);
      offset = (lane - col) * g.extent + col;
    }
    run_lanes(g, {grad + lane, x == nullptr ? nullptr : x + offset,
                  y == nullptr ? nullptr : y + lane, dx + offset, count});
    lane += count;
  }
}

KernelChoice choose_reduce_grad(const OpView& op) {
  const ReduceGrad g = *reduce_grad_of(op);
  KernelChoice choice;
  choice.tasks = g.tasks();
  if (choice.tasks == 1) return choice;
  const bool parts_of_rows = g.columns && g.matrices == 1;
  const int64_t lanes = g.per_task * 4;
  const int64_t elements = parts_of_rows ? lanes : lanes * g.extent;
  const int64_t pitch = parts_of_rows ? g.results * 4 : 0;
  const auto add = [&](bool is_x) {
    choice.task_stride.push_back(is_x ? elements : lanes);
    choice.task_pitch.push_back(is_x ? pitch : 0);
  };
  add(false);
  if (g.rule->reads_x) add(true);
  if (g.rule->reads_y) add(false);
  add(true);
  return choice;
}

}  // namespace

CpuKernel reduce_grad_kernel() {
  return {"cpu.reduce_grad", [](const OpView& op) { return reduce_grad_of(op).has_value(); },
          choose_reduce_grad,
          [](std::shared_ptr<const OpRecord> op) {
            const OpView view = op->view();
            return runtime::BoundKernel{run_reduce_grad,
                                        std::make_shared<ReduceGrad>(*reduce_grad_of(view))};
          }};
}

}  // namespace sluice::cpu
