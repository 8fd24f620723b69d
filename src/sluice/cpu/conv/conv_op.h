#pragma once
#include <cstdint>
#include <vector>

#include "sluice/base/layout.h"
#include "sluice/cpu/conv/conv.h"
#include "sluice/ops/conv_rules.h"

namespace sluice::cpu {

/// Positions of weight (output channel, input channel of the group, tap…) in memory: the floats
/// from one to the next along each of these axes.
struct ConvWeightSteps {
  int64_t out = 0, in = 0, tap = 0;
};
/// Returns the steps of a weight that is row-major or in taps (layout/layouts.h).
ConvWeightSteps weight_steps(const ops::ConvSizes& sizes, const Layout& layout = {});

/// The correlations that compute a conv or a conv_transpose. With strides, a transposed convolution
/// has several: one for each position modulo the stride. They store their grids one after the other
/// in each plane of the result, and run_conv_task() restores the order.
struct ConvPlan {
  std::vector<Correlation> correlations;
  ops::ConvSizes sizes;
  bool interleaves() const { return correlations.size() > 1; }
};
ConvPlan plan_conv(const ops::ConvSizes& sizes, const ConvWeightSteps& steps);
ConvPlan plan_conv_transpose(const ops::ConvSizes& sizes, const ConvWeightSteps& steps);
int64_t conv_workspace_bytes(const ConvPlan& plan);

WeightCorrelation plan_conv_weight_grad(const ops::ConvSizes& sizes, const ConvWeightSteps& steps);

/// How a convolution is cut into tasks, along one of three axes. It depends on sizes alone.
struct ConvCut {
  int64_t samples = 0;    ///< Samples of a task.
  int64_t rows = 0;       ///< Channels of the result in a task.
  int64_t positions = 0;  ///< Positions of a task.
  int64_t tasks = 1;
  /// KernelChoice::task_stride of the source; task_stride and task_pitch of tensors of the result's
  /// shape.
  int64_t source_stride = 0, stride = 0, pitch = 0;
};
ConvCut cut_conv(const ConvPlan& plan);
/// Returns the part of a task of a plan's correlation.
ConvPart part_of(const ConvCut& cut, const Correlation& c, int64_t task);
/// Computes a task of a plan. A plan that interleaves must have no epilogue.
void run_conv_task(const ConvPlan& plan, const ConvCut& cut, CorrelationOperands operands,
                   int64_t task, float* workspace, Isa isa = current_isa());

/// How the gradient of a weight is cut into tasks, so that the weights of a task are a range of the
/// result or the same range of each of its rows. It depends on sizes and the layout alone.
struct WeightCut {
  int64_t groups = 1;    ///< Groups of a task.
  int64_t channels = 0;  ///< Channels of a task.
  int64_t steps = 0;     ///< Steps (tap, channel) of a task, over its channels.
  int64_t tasks = 1;
  /// KernelChoice::task_stride and task_pitch of the result.
  int64_t stride = 0, pitch = 0;
};
WeightCut cut_weight_grad(const WeightCorrelation& c);
WeightPart part_of(const WeightCut& cut, const WeightCorrelation& c, int64_t task);

}  // namespace sluice::cpu
