#include <algorithm>

#include "sluice/base/checked.h"
#include "sluice/cpu/fused/dropout_op.h"
#include "sluice/cpu/kernels/kernel_list.h"
#include "sluice/cpu/kernels/tasks.h"
#include "sluice/cpu/simd/conversions.h"

namespace sluice::cpu {
namespace {

constexpr int64_t kRandomBlock = 512;  // Elements computed in f32 before they are narrowed.

// Dropout, or random numbers.
struct Random {
  explicit Random(const OpView& op)
      : dropout(DropoutOp::of(op)),
        dtype(op.output(0).dtype),
        elements(op.output(0).elements()),
        per_task(round_up(std::max(kTaskElements, ceil_div(elements, kMaxTasks)), 64)),
        tasks(std::max<int64_t>(1, ceil_div(elements, per_task))) {
    if (dtype != f32) {
      widen = widen_kernel(dtype);
      narrow = narrow_kernel(dtype);
    }
    is_normal = &op.def() == &ops::random_normal_def();
    if (is_normal) {
      normal = op.options<ops::RandomNormalOptions>();
    } else if (!dropout) {
      uniform = op.options<ops::RandomUniformOptions>();
    }
  }

  // Computes the elements [first, first + n) in f32. `y` points to the first, as does `x` of
  // dropout.
  void compute(Seed seed, int64_t first, const float* x, float* y, int64_t n) const {
    if (dropout) return dropout->run(seed, first, x, y, n);
    if (is_normal) {
      const auto mean = static_cast<float>(normal.mean), std = static_cast<float>(normal.std);
      const auto index = static_cast<uint64_t>(normal.offset + first);
      for (int64_t i = 0; i < n; ++i)
        y[i] = mean + std * random_normal(seed, index + static_cast<uint64_t>(i));
      return;
    }
    const auto low = static_cast<float>(uniform.low);
    const auto range = static_cast<float>(uniform.high - uniform.low);
    random_uniform(low, range, seed, static_cast<uint64_t>(uniform.offset + first), y, n);
  }

  std::optional<DropoutOp> dropout;
  bool is_normal = false;
  ops::RandomUniformOptions uniform;
  ops::RandomNormalOptions normal;
  DType dtype;
  int64_t elements;
  int64_t per_task;
  int64_t tasks;
  WidenFn widen = nullptr;    // Null for f32.
  NarrowFn narrow = nullptr;  // Null for f32.
};

void run_random(const void* state, const runtime::KernelBlock& block, int64_t task) {
  const auto& r = *static_cast<const Random*>(state);
  const std::byte* const x = r.dropout ? block.operands[0] : nullptr;
  const Seed seed = read_seed(block.operands[r.dropout ? 1 : 0]);
  std::byte* const y = block.operands[r.dropout ? 2 : 1];
  const int64_t begin = task * r.per_task, end = std::min(r.elements, begin + r.per_task);
  if (r.dtype == f32) {
    const auto* const from = x == nullptr ? nullptr : reinterpret_cast<const float*>(x) + begin;
    return r.compute(seed, begin, from, reinterpret_cast<float*>(y) + begin, end - begin);
  }
  alignas(64) float floats[kRandomBlock];
  const int64_t size = size_of(r.dtype);
  for (int64_t i = begin; i < end; i += kRandomBlock) {
    const int64_t n = std::min(kRandomBlock, end - i);
    if (x != nullptr) r.widen(x + i * size, floats, n);
    r.compute(seed, i, floats, floats, n);
    r.narrow(floats, y + i * size, n);
  }
}

KernelChoice choose_random(const OpView& op) {
  if (&op.def() == &ops::fold_seed_def()) return {};
  const Random r(op);
  KernelChoice choice{.tasks = r.tasks};
  if (r.tasks == 1) return choice;
  const int64_t stride = r.per_task * size_of(r.dtype);
  choice.task_stride =
      r.dropout ? std::vector<int64_t>{stride, 0, stride} : std::vector<int64_t>{0, stride};
  return choice;
}

// A new seed from a seed and a word.
struct FoldSeed {
  explicit FoldSeed(const OpView& op)
      : constant(op.options<ops::FoldSeedOptions>().data),
        operand(op.inputs() > 1),
        is_signed(operand && op.input(1).dtype == i32) {}

  int64_t constant;
  bool operand;  // The word is operand 1, not the constant.
  bool is_signed;
};

void run_fold_seed(const void* state, const runtime::KernelBlock& block, int64_t) {
  const auto& f = *static_cast<const FoldSeed*>(state);
  int64_t data = f.constant;
  if (f.operand) {
    const std::byte* const word = block.operands[1];
    data = f.is_signed ? int64_t{*reinterpret_cast<const int32_t*>(word)}
                       : int64_t{*reinterpret_cast<const uint32_t*>(word)};
  }
  const Seed seed = fold(read_seed(block.operands[0]), static_cast<uint64_t>(data));
  auto* const y = reinterpret_cast<uint32_t*>(block.operands[f.operand ? 2 : 1]);
  y[0] = seed.hi;
  y[1] = seed.lo;
}

bool supports_random(const OpView& op) {
  if (&op.def() == &ops::fold_seed_def()) return true;
  const bool drawn =
      &op.def() == &ops::random_uniform_def() || &op.def() == &ops::random_normal_def();
  return (drawn || DropoutOp::of(op)) && computes_in_f32(op.output(0).dtype);
}

runtime::BoundKernel bind_random(std::shared_ptr<const OpRecord> op) {
  const OpView view = op->view();
  if (&view.def() == &ops::fold_seed_def())
    return {run_fold_seed, std::make_shared<FoldSeed>(view)};
  return {run_random, std::make_shared<Random>(view)};
}

}  // namespace

CpuKernel random_kernel() { return {"cpu.random", supports_random, choose_random, bind_random}; }

}  // namespace sluice::cpu
