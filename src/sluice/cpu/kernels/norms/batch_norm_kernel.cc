#include "sluice/ops/normalization.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "sluice/base/checked.h"
#include "sluice/base/reduce.h"
#include "sluice/cpu/kernels/kernel_list.h"
#include "sluice/cpu/kernels/tasks.h"
#include "sluice/cpu/simd/norm.h"
#include "sluice/ops/norms.h"

namespace sluice::cpu {
namespace {

constexpr int64_t kBatchNormsAtOnce = NormChannels::kMax;
using ChannelSums = std::array<float, kBatchNormsAtOnce>;

enum class BatchNormOp : uint8_t { kTraining, kInference, kGradient };

// A batch norm, cut into tasks by channel. A task works on `at_once` successive channels at a time,
// so that what they read stays in the second cache from one pass to the next.
struct BatchNorm {
  explicit BatchNorm(const OpView& op) : planes(op.input(0).shape) {
    int own = 1;  // Operands before the weight.
    if (&op.def() == &ops::batch_norm_grad_def()) {
      const auto o = op.options<ops::BatchNormGradOptions>();
      kind = BatchNormOp::kGradient;
      epsilon = o.epsilon;
      training = o.training;
      own = 4;
    } else {
      epsilon = op.options<ops::BatchNormOptions>().epsilon;
      if (&op.def() == &ops::batch_norm_inference_def()) {
        kind = BatchNormOp::kInference;
        own = 3;
      }
    }
    inputs = op.inputs();
    if (inputs > own) weight = own;
    if (inputs > own + 1) bias = own + 1;
    constexpr int64_t kFloatsAtOnce = 65536;
    const int64_t values = planes.values() * (kind == BatchNormOp::kGradient ? 2 : 1);
    at_once = std::clamp<int64_t>(kFloatsAtOnce / values, 1, kBatchNormsAtOnce);
    per_task = rows_per_task(planes.channels, planes.values());
  }

  int64_t tasks() const { return ceil_div(planes.channels, per_task); }

  ops::Planes planes;
  BatchNormOp kind = BatchNormOp::kTraining;
  double epsilon = 0;
  bool training = true;
  int inputs = 0;
  int weight = -1;  // Operand; -1: absent.
  int bias = -1;
  int64_t at_once = 1;
  int64_t per_task = 1;
};

// Calls f(offset of the first plane, rows, step of numbers) for all planes of `count`
// channels from `c` on. A call takes one plane of each channel, or planes of one channel.
template <typename F>
void for_planes(const ops::Planes& p, int64_t c, int64_t count, F f) {
  if (count == 1) {
    for (int64_t n = 0; n < p.batch; n += kBatchNormsAtOnce) {
      const int64_t samples = std::min(kBatchNormsAtOnce, p.batch - n);
      f(p.at(n, c), NormRows{samples, p.size, p.channels * p.size}, 0);
    }
  } else {
    for (int64_t n = 0; n < p.batch; ++n) f(p.at(n, c), NormRows{count, p.size, p.size}, 1);
  }
}

// Calls sum(offset of the first plane, part of the planes, where sums begin) for each chunk of the
// samples of `count` channels from `c` on. Each call stores kSums arrays of sums. Returns the sums
// over all chunks.
template <size_t kSums, typename Sum>
std::array<ChannelSums, kSums> sum_chunks(const ops::Planes& p, int64_t c, int64_t count, Sum sum) {
  const int64_t samples = ops::samples_per_chunk(p);
  std::array<ChannelSums, kSums> chunk;
  const auto sum_samples = [&](int64_t n) {
    sum(p.at(n, c),
        NormChannels{std::min(samples, p.batch - n), count, p.size, p.channels * p.size}, chunk);
  };
  if (samples >= p.batch) {
    sum_samples(0);
    return chunk;
  }
  std::array<std::array<ChannelSums, kReduceLanes>, kSums> lanes{};
  const auto add = [count](ChannelSums& to, const ChannelSums& from) {
    for (int64_t i = 0; i < count; ++i) to.data()[i] = to.data()[i] + from.data()[i];
  };
  for (int64_t n = 0; n < p.batch; n += samples) {
    sum_samples(n);
    for (size_t s = 0; s < kSums; ++s) add(at(lanes[s], n / samples % kReduceLanes), chunk[s]);
  }
  for (size_t s = 0; s < kSums; ++s) {
    for (size_t half = kReduceLanes / 2; half > 0; half /= 2) {
      for (size_t j = 0; j < half; ++j) add(lanes[s][j], lanes[s][j + half]);
    }
    chunk[s] = lanes[s][0];
  }
  return chunk;
}

// The operands of a call.
struct Channels {
  Channels(const BatchNorm& b, const runtime::KernelBlock& block)
      : norm(b), operands(block.operands) {}
  const float* all(int operand) const { return reinterpret_cast<const float*>(operands[operand]); }
  float* result(int output) const {
    return reinterpret_cast<float*>(operands[norm.inputs + output]);
  }
  const float* of(int operand, int64_t c) const { return all(operand) + c; }

  const BatchNorm& norm;
  std::byte* const* operands;
};

// Computes the mean and the variance of `count` channels from `c` on.
void find_moments(const Channels& o, int64_t c, int64_t count, ChannelSums& mean,
                  ChannelSums& variance) {
  const ops::Planes& p = o.norm.planes;
  const float* const x = o.all(0);
  const auto divisor = static_cast<float>(p.values());
  using Sums = std::array<ChannelSums, 1>;
  const auto divide = [&](const Sums& sums, ChannelSums& to) {
    for (int64_t i = 0; i < count; ++i) to.data()[i] = sums[0].data()[i] / divisor;
  };
  const auto sum = [&](int64_t at, const NormChannels& part, Sums& sums) {
    channel_sums(part, x + at, sums[0].data());
  };
  divide(sum_chunks<1>(p, c, count, sum), mean);
  const auto squares = [&](int64_t at, const NormChannels& part, Sums& sums) {
    channel_squares(part, x + at, mean.data(), sums[0].data());
  };
  divide(sum_chunks<1>(p, c, count, squares), variance);
}

// Computes y of `count` channels from `c` on.
void normalize(const Channels& o, int64_t c, int64_t count, const float* mean,
               const float* variance) {
  const BatchNorm& b = o.norm;
  ChannelSums scale, shift;
  for (int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<size_t>(i);
    scale[at] = ops::inverse_deviation(variance[i], b.epsilon);
    if (b.weight >= 0) scale[at] = scale[at] * *o.of(b.weight, c + i);
    shift[at] = b.bias >= 0 ? *o.of(b.bias, c + i) : 0.0f;
  }
  NormNumbers numbers{.mean = mean, .scale = scale.data(), .shift = shift.data()};
  for_planes(b.planes, c, count, [&](int64_t at, const NormRows& rows, int64_t step) {
    numbers.step = step;
    norm_scale(rows, o.all(0) + at, numbers, o.result(0) + at);
  });
}

void run_training(const Channels& o, int64_t c, int64_t count) {
  ChannelSums mean, variance;
  find_moments(o, c, count, mean, variance);
  normalize(o, c, count, mean.data(), variance.data());
  std::copy_n(mean.begin(), count, o.result(1) + c);
  std::copy_n(variance.begin(), count, o.result(2) + c);
}

void run_inference(const Channels& o, int64_t c, int64_t count) {
  normalize(o, c, count, o.of(1, c), o.of(2, c));
}

void run_gradient(const Channels& o, int64_t c, int64_t count) {
  const BatchNorm& b = o.norm;
  const float* const grad = o.all(0);
  const float* const x = o.all(1);
  const float* const mean = o.of(2, c);
  const auto [g, gx] = sum_chunks<2>(
      b.planes, c, count,
      [&](int64_t at, const NormChannels& part, std::array<ChannelSums, 2>& sums) {
        channel_products(part, grad + at, x + at, mean, sums[0].data(), sums[1].data());
      });
  const auto divisor = static_cast<float>(b.planes.values());
  ChannelSums scale, slope, shift;
  for (int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<size_t>(i);
    const float inverse = ops::inverse_deviation(*o.of(3, c + i), b.epsilon);
    scale[at] = b.weight >= 0 ? inverse * *o.of(b.weight, c + i) : inverse;
    slope[at] = b.training ? scale[at] * ((inverse * inverse) * (gx[at] / divisor)) : 0.0f;
    shift[at] = b.training ? scale[at] * (g[at] / divisor) : 0.0f;
    o.result(1)[c + i] = gx[at] * inverse;
    o.result(2)[c + i] = g[at];
  }
  NormNumbers numbers{mean, scale.data(), slope.data(), shift.data()};
  for_planes(b.planes, c, count, [&](int64_t at, const NormRows& rows, int64_t step) {
    numbers.step = step;
    norm_gradient(rows, grad + at, x + at, numbers, o.result(0) + at);
  });
}

void run_batch_norm(const void* state, const runtime::KernelBlock& block, int64_t task) {
  const auto& b = *static_cast<const BatchNorm*>(state);
  const Channels operands(b, block);
  const int64_t end = std::min(b.planes.channels, (task + 1) * b.per_task);
  for (int64_t c = task * b.per_task; c < end; c += b.at_once) {
    const int64_t count = std::min(b.at_once, end - c);
    if (b.kind == BatchNormOp::kTraining) run_training(operands, c, count);
    if (b.kind == BatchNormOp::kInference) run_inference(operands, c, count);
    if (b.kind == BatchNormOp::kGradient) run_gradient(operands, c, count);
  }
}

// The factors of all channels.
void run_scale(const void* state, const runtime::KernelBlock& block, int64_t) {
  const auto& [channels, epsilon] = *static_cast<const std::pair<int64_t, double>*>(state);
  const auto operand = [&](int i) { return reinterpret_cast<float*>(block.operands[i]); };
  for (int64_t c = 0; c < channels; ++c)
    operand(2)[c] = ops::inverse_deviation(operand(0)[c], epsilon) * operand(1)[c];
}

bool is_scale(const OpView& op) { return &op.def() == &ops::batch_norm_scale_def(); }

bool supports_batch_norm(const OpView& op) {
  const OpDef* const def = &op.def();
  return (def == &ops::batch_norm_def() || def == &ops::batch_norm_inference_def() ||
          def == &ops::batch_norm_grad_def() || is_scale(op)) &&
         op.input(0).dtype == f32 && op.input(0).elements() > 0;
}

KernelChoice choose_batch_norm(const OpView& op) {
  if (is_scale(op)) return {};
  const BatchNorm b(op);
  KernelChoice choice;
  choice.tasks = b.tasks();
  const auto add = [&](const TensorSpec& spec) {
    const int64_t size = spec.shape.rank() == 1 ? 1 : b.planes.size;
    choice.task_stride.push_back(b.per_task * size * 4);
    choice.task_pitch.push_back(spec.shape.rank() == 1 ? 0 : b.planes.channels * size * 4);
  };
  for (int i = 0; i < op.inputs(); ++i) add(op.input(i));
  for (int i = 0; i < op.outputs(); ++i) add(op.output(i));
  return choice;
}

}  // namespace

CpuKernel batch_norm_kernel() {
  return {"cpu.batch_norm", supports_batch_norm, choose_batch_norm,
          [](std::shared_ptr<const OpRecord> op) {
            const OpView view = op->view();
            if (is_scale(view)) {
              return runtime::BoundKernel{
                  run_scale,
                  std::make_shared<std::pair<int64_t, double>>(
                      view.input(0).elements(), view.options<ops::BatchNormOptions>().epsilon)};
            }
            return runtime::BoundKernel{run_batch_norm, std::make_shared<BatchNorm>(view)};
          }};
}

}  // namespace sluice::cpu
