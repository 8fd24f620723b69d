#include <algorithm>

#include "sluice/base/checked.h"
#include "sluice/cpu/attention/attention.h"
#include "sluice/cpu/gemm/gemm.h"
#include "sluice/cpu/kernels/kernel_list.h"
#include "sluice/cpu/kernels/tasks.h"
#include "sluice/cpu/random/random.h"
#include "sluice/ops/attention.h"

namespace sluice::cpu {
namespace {

// The cost of an exponential and the other steps of a score, in multiply-adds.
constexpr double kScoreMultiplyAdds = 64;

// Attention and its gradients. A task computes some batches, or some heads of k of all batches.
struct Attention {
  explicit Attention(const OpView& op) : job(op) {
    const ops::AttentionShape& s = job.shape;
    by_batch = s.batch >= std::min<int64_t>(8, s.kv_heads);
    count = by_batch ? s.batch : s.kv_heads;
    per_task = ceil_div(count, std::min({count, kMaxTasks, worthwhile()}));
    mask_adds = s.mask_input >= 0 && op.input(s.mask_input).dtype != DType::kBool;
    position_is_signed = s.position_input >= 0 && op.input(s.position_input).dtype == i32;
  }
  int64_t tasks() const { return ceil_div(count, per_task); }
  // The maximum number of tasks that are worth their barriers. The backward pass has five products
  // instead of two.
  int64_t worthwhile() const {
    const ops::AttentionShape& s = job.shape;
    const auto elements = static_cast<double>(s.size + s.value_size);
    const double keys = static_cast<double>(s.batch * s.kv_heads) * static_cast<double>(s.keys);
    const double scores = keys * static_cast<double>(s.group() * s.queries);
    const double products = (job.backward ? 2.5 : 1) * elements;
    return tasks_worthwhile(scores * (products + kScoreMultiplyAdds), 4 * keys * elements);
  }

  AttentionJob job;
  bool by_batch = true;
  int64_t count = 1;  // Batches or heads.
  int64_t per_task = 1;
  bool mask_adds = false;
  bool position_is_signed = false;
};

AttentionArrays arrays_of(const Attention& a, const runtime::KernelBlock& block) {
  const ops::AttentionShape& s = a.job.shape;
  const auto input = [&](int i) { return reinterpret_cast<const float*>(block.operands[i]); };
  const auto result = [&](int i) { return reinterpret_cast<float*>(block.operands[i]); };
  AttentionArrays arrays;
  const int first = a.job.backward ? 1 : 0;
  const int optional = a.job.options.mask + a.job.options.seed + a.job.options.position;
  const int outputs = (a.job.backward ? 6 : 3) + optional;
  arrays.q = input(first);
  arrays.k = input(first + 1);
  arrays.v = input(first + 2);
  if (a.job.backward) {
    arrays.grad = input(0);
    arrays.top = result(4);
    arrays.total = result(5);
    arrays.dq = result(outputs);
    arrays.dk = result(outputs + 1);
    arrays.dv = result(outputs + 2);
  } else {
    arrays.y = result(outputs);
    arrays.top = result(outputs + 1);
    arrays.total = result(outputs + 2);
  }
  if (s.mask_input >= 0) arrays.mask = block.operands[s.mask_input];
  arrays.mask_adds = a.mask_adds;
  if (s.seed_input >= 0) arrays.seed = read_seed(block.operands[s.seed_input]);
  if (s.position_input >= 0) {
    const std::byte* const p = block.operands[s.position_input];
    arrays.position = a.position_is_signed ? int64_t{*reinterpret_cast<const int32_t*>(p)}
                                           : int64_t{*reinterpret_cast<const uint32_t*>(p)};
  }
  arrays.workspace = reinterpret_cast<float*>(block.workspace);
  return arrays;
}

void run_attention(const void* state, const runtime::KernelBlock& block, int64_t task) {
  const auto& a = *static_cast<const Attention*>(state);
  const ops::AttentionShape& s = a.job.shape;
  const AttentionArrays arrays = arrays_of(a, block);
  const int64_t begin = task * a.per_task, end = std::min(a.count, begin + a.per_task);
  const int64_t batch_end = a.by_batch ? end : s.batch;
  const int64_t head_begin = a.by_batch ? 0 : begin, head_end = a.by_batch ? s.kv_heads : end;
  for (int64_t b = a.by_batch ? begin : 0; b < batch_end; ++b) {
    for (int64_t h = head_begin; h < head_end; ++h)
      (a.job.backward ? attention_backward : attention_forward)(a.job, arrays, b, h);
  }
}

bool supports_attention(const OpView& op) {
  if (!ops::is_attention(op.def()) && !ops::is_attention_grad(op.def())) return false;
  for (int i = 0; i < op.inputs(); ++i) {
    const DType dtype = op.input(i).dtype;
    if (is_float(dtype) && dtype != f32) return false;
  }
  const int first = ops::is_attention_grad(op.def()) ? 1 : 0;
  for (int i = first; i < first + 3; ++i) {
    if (op.input(i).elements() == 0) return false;
  }
  return op.output(0).elements() > 0;
}

KernelChoice choose_attention(const OpView& op) {
  const Attention a(op);
  const ops::AttentionShape& s = a.job.shape;
  KernelChoice choice;
  choice.tasks = a.tasks();
  choice.workspace_bytes = a.job.workspace_bytes();
  const auto operands = static_cast<size_t>(op.inputs() + op.outputs());
  choice.task_stride.assign(operands, 0);
  choice.task_pitch.assign(operands, 0);
  if (choice.tasks == 1) return choice;
  // A batch has `heads` times `floats`; `unit` of them belong together if the heads are cut.
  const auto cut = [&](int operand, int64_t heads, int64_t floats, int64_t unit) {
    const auto i = static_cast<size_t>(operand);
    const int64_t per_head = heads / s.kv_heads;
    if (a.by_batch) {
      choice.task_stride[i] = a.per_task * heads * floats * 4;
    } else {
      choice.task_stride[i] = a.per_task * per_head * unit * 4;
      choice.task_pitch[i] = heads * unit * 4;
    }
  };
  const bool last = a.job.options.heads_last;
  const auto result = [&](int operand, int64_t heads, int64_t rows, int64_t size) {
    cut(operand, heads, rows * size, last ? size : rows * size);
  };
  const auto input = [&](int operand, int64_t heads, int64_t rows, int64_t size) {
    if (a.job.options.sizes.empty()) cut(operand, heads, rows * size, rows * size);
  };
  const int first = a.job.backward ? 1 : 0, out = op.inputs();
  input(first, s.heads, s.queries, s.size);
  input(first + 1, s.kv_heads, s.keys, s.size);
  input(first + 2, s.kv_heads, s.keys, s.value_size);
  if (a.job.backward) {
    input(0, s.heads, s.queries, s.value_size);
    for (const int sums : {4, 5}) cut(sums, s.heads, s.queries, s.queries);
    result(out, s.heads, s.queries, s.size);
    result(out + 1, s.kv_heads, s.keys, s.size);
    result(out + 2, s.kv_heads, s.keys, s.value_size);
  } else {
    result(out, s.heads, s.queries, s.value_size);
    for (const int sums : {out + 1, out + 2}) cut(sums, s.heads, s.queries, s.queries);
  }
  return choice;
}

}  // namespace

CpuKernel attention_kernel() {
  return {"cpu.attention", supports_attention, choose_attention,
          [](std::shared_ptr<const OpRecord> op) {
            return runtime::BoundKernel{run_attention, std::make_shared<Attention>(op->view())};
          }};
}

}  // namespace sluice::cpu
