#include <algorithm>
#include <array>

#include "sluice/base/checked.h"
#include "sluice/cpu/functor.h"
#include "sluice/cpu/kernel_list.h"
#include "sluice/ops/op.h"

namespace sluice::cpu {
namespace {

constexpr int kMostInputs = Functor::kMostInputs;
constexpr int64_t kMostTasks = 16;
constexpr int64_t kTaskElements =
    4096;  // 16 KiB of each operand: far more work than handing it over costs.
constexpr int64_t kMostRows = 1 << 16;  // Rows whose offsets are worth keeping in a table.

// The output as rows of `inner` elements, so that each input is an array or one value along a row.
struct Rows {
  int64_t outer = 1;
  int64_t inner = 1;
};

bool rows_of(const OpView& op, int inputs, Rows& rows) {
  const Shape& out = op.output(0).shape;
  const auto full_from = [&](const Shape& in, int axis) {  // Equal to the output from `axis` on.
    const int lead = out.rank() - in.rank();
    for (int i = axis; i < out.rank(); ++i) {
      if (i < lead || in[i - lead] != out[i]) return false;
    }
    return true;
  };
  const auto one_from = [&](const Shape& in, int axis) {
    const int lead = out.rank() - in.rank();
    for (int i = std::max(axis, lead); i < out.rank(); ++i) {
      if (in[i - lead] != 1) return false;
    }
    return true;
  };
  int axis = 0;
  const auto fits = [&](int a) {
    for (int i = 0; i < inputs; ++i) {
      if (!full_from(op.input(i).shape, a) && !one_from(op.input(i).shape, a)) return false;
    }
    return true;
  };
  while (axis < out.rank() && !fits(axis)) ++axis;
  for (int i = 0; i < out.rank(); ++i) (i < axis ? rows.outer : rows.inner) *= out[i];
  return rows.outer <= kMostRows;
}

struct Elementwise {
  Functor functor;
  Rows rows;
  int inputs = 0;
  int outputs_at = 0;                       // Index of output 0 among the operands.
  std::array<int64_t, kMostInputs> step{};  // 1: array along a row, 0: one value.
  std::vector<std::array<int64_t, kMostInputs>>
      at;                // Offsets by row, in elements; empty if there is one row.
  int64_t per_task = 0;  // Rows, or elements of the only row.
};

int64_t per_task(const Rows& rows) {
  if (rows.outer == 1)
    return round_up(std::max(kTaskElements, ceil_div(rows.inner, kMostTasks)), 16);
  return std::max<int64_t>(
      {1, kTaskElements / std::max<int64_t>(rows.inner, 1), ceil_div(rows.outer, kMostTasks)});
}

void run(const void* state, const runtime::KernelBlock& block, int64_t task) {
  const auto& e = *static_cast<const Elementwise*>(state);
  Functor::Storage own;
  const void* functor = e.functor.parameters(block.operands, own);
  MapInput inputs[kMostInputs];
  auto* const out = reinterpret_cast<float*>(block.operands[e.outputs_at]);
  if (e.at.empty()) {
    const int64_t begin = task * e.per_task;
    for (int i = 0; i < e.inputs; ++i) {
      const int64_t step = e.step[static_cast<size_t>(i)];
      inputs[i] = {reinterpret_cast<const float*>(block.operands[i]) + begin * step, step};
    }
    const MapOutput output{out + begin};
    e.functor.kernel()(functor, inputs, &output, 1, std::min(e.per_task, e.rows.inner - begin));
    return;
  }
  const int64_t end = std::min(e.rows.outer, (task + 1) * e.per_task);
  for (int64_t row = task * e.per_task; row < end; ++row) {
    for (int i = 0; i < e.inputs; ++i) {
      inputs[i] = {reinterpret_cast<const float*>(block.operands[i]) +
                       e.at[static_cast<size_t>(row)][static_cast<size_t>(i)],
                   e.step[static_cast<size_t>(i)]};
    }
    const MapOutput output{out + row * e.rows.inner};
    e.functor.kernel()(functor, inputs, &output, 1, e.rows.inner);
  }
}

bool supports(const OpView& op) {
  if (!Functor::exists(op) || op.output(0).elements() == 0) return false;
  Rows rows;
  return rows_of(op, Functor(op).inputs(), rows);
}

KernelChoice choose(const OpView& op) {
  Rows rows;
  const int inputs = Functor(op).inputs();
  rows_of(op, inputs, rows);
  KernelChoice choice;
  const int64_t part = per_task(rows);
  choice.tasks = std::max<int64_t>(1, ceil_div(rows.outer == 1 ? rows.inner : rows.outer, part));
  const int64_t bytes = (rows.outer == 1 ? part : part * rows.inner) * 4;
  for (int i = 0; i < op.inputs(); ++i) {
    choice.task_stride.push_back(i < inputs && op.input(i).shape == op.output(0).shape ? bytes : 0);
  }
  choice.task_stride.push_back(bytes);
  return choice;
}

runtime::BoundKernel bind(std::shared_ptr<const OpRecord> op) {
  const OpView view = op->view();
  auto e = std::make_shared<Elementwise>();
  e->functor = Functor(view);
  e->inputs = e->functor.inputs();
  e->outputs_at = view.inputs();
  rows_of(view, e->inputs, e->rows);
  e->per_task = per_task(e->rows);
  std::vector<ops::BroadcastIndex> index;
  for (int i = 0; i < e->inputs; ++i) {
    index.emplace_back(view.input(i).shape, view.output(0).shape);
    e->step[static_cast<size_t>(i)] =
        e->rows.inner > 1 && index.back()(1) != index.back()(0) ? 1 : 0;
  }
  if (e->rows.outer > 1) {
    e->at.resize(static_cast<size_t>(e->rows.outer));
    for (int64_t row = 0; row < e->rows.outer; ++row) {
      for (size_t i = 0; i < index.size(); ++i)
        e->at[static_cast<size_t>(row)][i] = index[i](row * e->rows.inner);
    }
  }
  return {run, e, flops_of(view)};
}

}  // namespace

CpuKernel elementwise_kernel() { return {"cpu.elementwise", supports, choose, bind}; }

}  // namespace sluice::cpu
