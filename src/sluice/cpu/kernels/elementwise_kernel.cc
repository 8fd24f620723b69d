#include <algorithm>
#include <array>

#include "sluice/base/checked.h"
#include "sluice/cpu/fused/functor.h"
#include "sluice/cpu/kernels/integers.h"
#include "sluice/cpu/kernels/kernel_list.h"
#include "sluice/cpu/kernels/tasks.h"
#include "sluice/cpu/simd/conversions.h"
#include "sluice/cpu/simd/streaming.h"
#include "sluice/ops/op.h"

namespace sluice::cpu {
namespace {

constexpr int kMaxInputs = Functor::kMaxInputs;
// Elements of a widened block. The blocks of a few operands fill half of the L1 cache.
constexpr int64_t kElementwiseBlock = 512;
constexpr int64_t kMaxRows = 1 << 16;  // Maximum rows in the table of offsets.

// The output, viewed as `outer` rows of `inner` elements. Along a row, each input is an array or
// one value.
struct Rows {
  int64_t outer = 1;
  int64_t inner = 1;
};

bool rows_of(const OpView& op, int inputs, Rows& rows) {
  const Shape& out = op.output(0).shape;
  // Returns whether the input has the shape of the output from `axis` on.
  const auto full_from = [&](const Shape& in, int axis) {
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
  return rows.outer <= kMaxRows;
}

struct Elementwise {
  IntegerMap integers = nullptr;  // Runs the op; if null, the functor does.
  Functor functor;
  Rows rows;
  int inputs = 0;
  int outputs_at = 0;             // Index of output 0 among the operands.
  int64_t step[kMaxInputs] = {};  // 1: array along a row, 0: one value.
  Element input_elements[kMaxInputs];
  Element output_element;
  bool all_f32 = true;
  bool streams = false;  // Streaming stores, unless a row overwrites an input.
  // Offset of each input, in elements, for each row; empty if there is one row.
  std::vector<std::array<int64_t, kMaxInputs>> at;
  int64_t per_task = 0;  // Rows of a task, or its elements if there is one row.
};

int64_t per_task(const Rows& rows) {
  if (rows.outer == 1)
    return round_up(std::max(kTaskElements, ceil_div(rows.inner, kMaxTasks)), 16);
  return rows_per_task(rows.outer, rows.inner);
}

// Computes n elements of a row in blocks that fit in the L1 cache. Used if an operand is not f32,
// or if the output is streamed because it is larger than the caches.
void run_in_blocks(const Elementwise& e, const void* functor, const std::byte* const* from,
                   std::byte* to, int64_t n, bool streams) {
  alignas(64) float floats[kMaxInputs + 1][kElementwiseBlock];
  alignas(64) std::byte narrowed[kElementwiseBlock * sizeof(float)];
  MapInput inputs[kMaxInputs];
  for (int i = 0; i < e.inputs; ++i) {
    const Element& element = e.input_elements[i];
    inputs[i] = {element.widen == nullptr ? reinterpret_cast<const float*>(from[i]) : floats[i],
                 e.step[i]};
    if (element.widen != nullptr && e.step[i] == 0) element.widen(from[i], floats[i], 1);
  }
  const bool narrows = e.output_element.narrow != nullptr;
  const int64_t max = streams ? kStreamedBlock : kElementwiseBlock;
  for (int64_t done = 0; done < n; done += max) {
    const int64_t count = std::min(max, n - done);
    for (int i = 0; i < e.inputs; ++i) {
      const Element& element = e.input_elements[i];
      if (e.step[i] == 0) continue;
      const std::byte* const part = from[i] + done * element.size;
      if (streams) prefetch_ahead(part, count * element.size);
      if (element.widen != nullptr)
        element.widen(part, floats[i], count);
      else
        inputs[i].data = reinterpret_cast<const float*>(part);
    }
    std::byte* const result = to + done * e.output_element.size;
    std::byte* const block = !streams  ? result
                             : narrows ? narrowed
                                       : reinterpret_cast<std::byte*>(floats[kMaxInputs]);
    const MapOutput output{narrows ? floats[kMaxInputs] : reinterpret_cast<float*>(block)};
    e.functor.kernel()(functor, inputs, &output, 1, count);
    if (narrows) e.output_element.narrow(output.data, block, count);
    if (streams) stream(block, result, count * e.output_element.size);
  }
  if (streams) finish_streams();
}

void run_row(const Elementwise& e, const void* functor, const std::byte* const* from, std::byte* to,
             int64_t n) {
  if (e.integers != nullptr) return e.integers(from, e.step, to, n);
  // If the row overwrites an input, the cache holds its lines already and streaming gains nothing.
  const bool streams = e.streams && std::find(from, from + e.inputs, to) == from + e.inputs;
  if (!e.all_f32 || streams) return run_in_blocks(e, functor, from, to, n, streams);
  MapInput inputs[kMaxInputs];
  for (int i = 0; i < e.inputs; ++i)
    inputs[i] = {reinterpret_cast<const float*>(from[i]), e.step[i]};
  const MapOutput output{reinterpret_cast<float*>(to)};
  e.functor.kernel()(functor, inputs, &output, 1, n);
}

void run_elementwise(const void* state, const runtime::KernelBlock& block, int64_t task) {
  const auto& e = *static_cast<const Elementwise*>(state);
  const int inputs = e.inputs;
  Functor::Storage own;
  const void* const functor =
      e.integers != nullptr ? nullptr : e.functor.parameters(block.operands, own);
  const std::byte* from[kMaxInputs];
  std::byte* const out = block.operands[e.outputs_at];
  const int64_t out_size = e.output_element.size;
  if (e.at.empty()) {
    const int64_t begin = task * e.per_task;
    for (int i = 0; i < inputs; ++i)
      from[i] = block.operands[i] + begin * e.step[i] * e.input_elements[i].size;
    run_row(e, functor, from, out + begin * out_size, std::min(e.per_task, e.rows.inner - begin));
    return;
  }
  const int64_t end = std::min(e.rows.outer, (task + 1) * e.per_task);
  for (int64_t row = task * e.per_task; row < end; ++row) {
    const int64_t* const at = e.at.data()[row].data();
    for (int i = 0; i < inputs; ++i) from[i] = block.operands[i] + at[i] * e.input_elements[i].size;
    run_row(e, functor, from, out + row * e.rows.inner * out_size, e.rows.inner);
  }
}

// Operands that the kernel reads element by element.
int inputs_of(const OpView& op) {
  return integer_map(op) != nullptr ? op.inputs() : Functor(op).inputs();
}

bool supports_elementwise(const OpView& op) {
  if (integer_map(op) == nullptr && !Functor::exists(op)) return false;
  Rows rows;
  return op.output(0).elements() > 0 && rows_of(op, inputs_of(op), rows);
}

KernelChoice choose_elementwise(const OpView& op) {
  Rows rows;
  const int inputs = inputs_of(op);
  rows_of(op, inputs, rows);
  KernelChoice choice;
  const int64_t part = per_task(rows);
  choice.tasks = std::max<int64_t>(1, ceil_div(rows.outer == 1 ? rows.inner : rows.outer, part));
  const int64_t elements = rows.outer == 1 ? part : part * rows.inner;
  for (int i = 0; i < op.inputs(); ++i) {
    const bool cut = i < inputs && op.input(i).shape == op.output(0).shape;
    choice.task_stride.push_back(cut ? elements * size_of(op.input(i).dtype) : 0);
  }
  choice.task_stride.push_back(elements * size_of(op.output(0).dtype));
  return choice;
}

runtime::BoundKernel bind_elementwise(std::shared_ptr<const OpRecord> op) {
  const OpView view = op->view();
  auto e = std::make_shared<Elementwise>();
  e->integers = integer_map(view);
  if (e->integers == nullptr) e->functor = Functor(view);
  e->inputs = inputs_of(view);
  e->outputs_at = view.inputs();
  rows_of(view, e->inputs, e->rows);
  e->per_task = per_task(e->rows);
  e->output_element = element_of(view.output(0).dtype);
  e->all_f32 = view.output(0).dtype == f32;
  e->streams = is_streamed(view.output(0).bytes(), view.def().flops_per_element);
  std::vector<ops::BroadcastIndex> index;
  for (int i = 0; i < e->inputs; ++i) {
    index.emplace_back(view.input(i).shape, view.output(0).shape);
    e->input_elements[i] = element_of(view.input(i).dtype);
    e->all_f32 = e->all_f32 && view.input(i).dtype == f32;
    e->step[i] = e->rows.inner > 1 && index.back()(1) != index.back()(0) ? 1 : 0;
  }
  if (e->rows.outer > 1) {
    for (int64_t row = 0; row < e->rows.outer; ++row) {
      auto& at = e->at.emplace_back();
      for (size_t i = 0; i < index.size(); ++i) at[i] = index[i](row * e->rows.inner);
    }
  }
  return {run_elementwise, e};
}

}  // namespace

CpuKernel elementwise_kernel() {
  return {"cpu.elementwise", supports_elementwise, choose_elementwise, bind_elementwise};
}

}  // namespace sluice::cpu
