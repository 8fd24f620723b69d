#include <fmt/core.h>

#include <memory>
#include <utility>

#include "bench/figure.h"
#include "sluice/base/checked.h"
#include "sluice/cpu/conv/conv_op.h"
#include "sluice/cpu/layout/layouts.h"

namespace sluice::bench {
namespace {

constexpr int kConvSamples = 5;
constexpr double kConvSeconds = 2e-3;

/// A convolution of square images.
struct ConvSize {
  int64_t batch, in, side, out, taps, stride, padding;
  int64_t groups = 1;

  int64_t out_side() const { return (side + 2 * padding - taps) / stride + 1; }
};
constexpr ConvSize kConvSizes[] = {
    // ResNet: its residual blocks, a block that halves the image, a shortcut, narrow channels.
    {32, 64, 32, 64, 3, 1, 1},
    {32, 128, 16, 128, 3, 1, 1},
    {32, 256, 8, 256, 3, 1, 1},
    {32, 512, 4, 512, 3, 1, 1},
    {32, 64, 32, 128, 3, 2, 1},
    {32, 64, 32, 128, 1, 2, 0},
    {32, 16, 32, 16, 3, 1, 1},
    // mnist-cnn.
    {40, 1, 28, 10, 5, 1, 0},
    {40, 10, 12, 20, 5, 1, 0},
    // A depthwise convolution.
    {32, 128, 16, 128, 3, 1, 1, 128},
};

enum class Result { kForward, kInputGradient, kWeightGradient };
struct ConvKind {
  Result result;
  const char* name;
  // Goal as a fraction of the peak, for 3 x 3 taps, stride 1 and at least 64 channels in a group.
  double goal;
};
constexpr ConvKind kConvKinds[] = {{Result::kForward, "forward", 0.8},
                                   {Result::kInputGradient, "dX", 0.75},
                                   {Result::kWeightGradient, "dW", 0.75}};

ops::ConvSizes conv_sizes(const ConvSize& s) {
  return {.batch = s.batch,
          .groups = s.groups,
          .x_channels = s.in / s.groups,
          .y_channels = s.out / s.groups,
          .x_size = {1, s.side, s.side},
          .y_size = {1, s.out_side(), s.out_side()},
          .taps = {1, s.taps, s.taps},
          .stride = {1, s.stride, s.stride},
          .padding = {0, s.padding, s.padding}};
}

// One convolution or gradient with its operands. The weight has the layout that programs use, and
// tasks are those of the compiler.
class Conv {
 public:
  Conv(const ConvSize& s, Result result) : result_(result) {
    const ops::ConvSizes sizes = conv_sizes(s);
    const cpu::ConvWeightSteps steps = cpu::weight_steps(sizes, cpu::in_taps());
    int64_t workspace = 0;  // Bytes.
    if (result == Result::kWeightGradient) {
      gradient_ = cpu::plan_conv_weight_grad(sizes, steps);
      weight_cut_ = cpu::cut_weight_grad(gradient_);
      workspace = cpu::correlate_weights_workspace_bytes(gradient_, weight_cut_.steps);
    } else {
      plan_ = result == Result::kForward ? cpu::plan_conv(sizes, steps)
                                         : cpu::plan_conv_transpose(sizes, steps);
      cut_ = cpu::cut_conv(plan_);
      workspace = cpu::conv_workspace_bytes(plan_);
    }
    // Place the operands one after another, as in an arena. Operands that all begin at a page would
    // share cache sets.
    int64_t floats = 0;
    const auto size_of_operand = [&](int64_t size) {
      return std::exchange(floats, floats + round_up(size, 16));
    };
    const int64_t x = size_of_operand(s.batch * s.in * s.side * s.side),
                  y = size_of_operand(s.batch * s.out * s.out_side() * s.out_side()),
                  w = size_of_operand(s.out * s.in / s.groups * s.taps * s.taps),
                  space = size_of_operand(ceil_div(workspace, 4));
    memory_ = std::make_unique<Memory>(floats * 4);
    x_ = memory_->floats() + x;
    y_ = memory_->floats() + y;
    w_ = memory_->floats() + w;
    workspace_ = memory_->floats() + space;
  }

  void run(cpu::Isa isa) const {
    if (result_ == Result::kWeightGradient) {
      for (int64_t task = 0; task < weight_cut_.tasks; ++task) {
        cpu::correlate_weights(gradient_, {x_, y_, w_}, cpu::part_of(weight_cut_, gradient_, task),
                               workspace_, isa);
      }
      return;
    }
    const bool forward = result_ == Result::kForward;
    for (int64_t task = 0; task < cut_.tasks; ++task) {
      cpu::run_conv_task(plan_, cut_, {forward ? x_ : y_, w_, forward ? y_ : x_}, task, workspace_,
                         isa);
    }
  }

 private:
  Result result_;
  cpu::ConvPlan plan_;
  cpu::ConvCut cut_;
  cpu::WeightCorrelation gradient_;
  cpu::WeightCut weight_cut_;
  std::unique_ptr<Memory> memory_;
  float *x_, *y_, *w_, *workspace_;
};

std::string name_of(const ConvSize& s) {
  return fmt::format("{}x{} {}@{}x{} to {}{}{}", s.taps, s.taps, s.in, s.side, s.side, s.out,
                     s.stride > 1 ? fmt::format(", stride {}", s.stride) : "",
                     s.groups > 1 ? ", depthwise" : "");
}

Case conv_case(Machine& machine, const ConvSize& s, const ConvKind& kind) {
  const double flops = 2.0 * static_cast<double>(s.batch * s.out * s.out_side() * s.out_side()) *
                       static_cast<double>(s.in / s.groups * s.taps * s.taps);
  Case c{.group = "conv",
         .name = fmt::format("{} {}", name_of(s), kind.name),
         .unit = Unit::kGigaflops,
         .work = flops,
         .pytorch = fmt::format("conv {} {} {} {} {} {} {} {} {} 1", kind.name, s.batch, s.in,
                                s.side, s.out, s.taps, s.stride, s.padding, s.groups)};
  if (s.taps == 3 && s.stride == 1 && s.in / s.groups >= 64)
    c.goals.push_back({Goal::Of::kPart, kind.goal});
  c.start = [&machine, s, kind, flops]() -> std::function<Round()> {
    auto conv = std::make_shared<const Conv>(s, kind.result);
    return [&machine, conv, flops] {
      std::vector<double> seconds, limits;
      for (int i = 0; i < kConvSamples; ++i) {
        limits.push_back(flops / machine.peak(1));
        seconds.push_back(seconds_a_call(kConvSeconds, [&] { conv->run(machine.isa()); }));
      }
      return Round{median(seconds), median(limits)};
    };
  };
  return c;
}

}  // namespace

std::vector<Case> conv_cases(Machine& machine) {
  std::vector<Case> cases;
  for (const ConvSize& size : kConvSizes) {
    for (const ConvKind& kind : kConvKinds) cases.push_back(conv_case(machine, size, kind));
  }
  return cases;
}

}  // namespace sluice::bench
