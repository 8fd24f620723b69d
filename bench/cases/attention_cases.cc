#include <fmt/core.h>

#include <algorithm>
#include <memory>

#include "bench/cases/one_operator.h"
#include "bench/steps.h"
#include "sluice/ir/call.h"
#include "sluice/transforms/autodiff.h"

namespace sluice::bench {
namespace {

constexpr int kAttentionPeaks = 5;
constexpr double kAttentionGoal = 1.2;  // Over the speed of PyTorch.
constexpr int64_t kAttentionHeads = 6, kHeadSize = 64;

/// Causal attention, alone or with its gradient.
struct AttentionWork {
  bool gradient;
  int64_t batch, length;
  int64_t steps;  // Steps of a round.
};
constexpr AttentionWork kAttention[] = {
    {false, 8, 256, 30}, {true, 8, 256, 10}, {false, 1, 2048, 8}, {true, 1, 2048, 3}};

class RunningAttention {
 public:
  RunningAttention(const AttentionWork& w, int threads) {
    const TensorSpec spec{{w.batch, kAttentionHeads, w.length, kHeadSize}, f32, {}};
    Graph& main = ir_.main_graph();
    Graph& forward = ir_.create_empty_graph("attention");
    Tensors operands, inputs;
    for (uint32_t i = 0; i < 3; ++i) {
      const Initializer values = Initializer::normal(0, 1).keyed({1, i});
      operands.push_back(main.variable(spec, values, fmt::format("operand.{}", i)));
      inputs.push_back(forward.input(spec, fmt::format("operand.{}", i)));
    }
    forward.add_output(ops::attention(inputs[0], inputs[1], inputs[2], {.causal = true}));
    if (w.gradient) {
      const auto backward = transforms::autodiff(forward, {.grads_required = inputs});
      const CallSiteInfo call = ops::call_with_info(main, forward, operands);
      const Tensors gradients =
          ops::call(main, backward.graph(), {call.output(0)}, backward.inputs_dict(call));
      for (const Tensor& gradient : gradients) keep(gradient);
    } else {
      keep(ops::call(main, forward, operands)[0]);
    }
    session_ =
        std::make_unique<Session>(ir_, SessionOptions{.device = cpu_device({.threads = threads})});
    std::vector<StreamOutput> outputs;
    results_.reserve(static_cast<size_t>(ir_.stream_count()));
    for (int32_t i = 0; i < ir_.stream_count(); ++i) {
      const StreamInfo& info = ir_.stream(i);
      outputs.push_back({{ir_.id(), i, info.name, info.spec}, results_.emplace_back(info.spec)});
    }
    binding_ = session_->bind({}, outputs);
  }

  StepTimes time(int64_t steps) { return time_steps(*session_, binding_, steps); }

 private:
  Ir ir_;
  std::unique_ptr<Session> session_;
  std::vector<HostTensor> results_;
  Binding binding_;
};

Case attention_case(Machine& machine, const AttentionWork& w, int threads) {
  return {.group = "attention",
          .name = fmt::format("{}, {} x {} heads, length {}",
                              w.gradient ? "forward and gradient" : "forward", w.batch,
                              kAttentionHeads, w.length),
          .threads = threads,
          .goals = {{Goal::Of::kPyTorch, kAttentionGoal}},
          .pytorch = fmt::format("attention {} {} {} {} {} {}", w.gradient ? "gradient" : "forward",
                                 w.batch, kAttentionHeads, w.length, kHeadSize, threads),
          .start = [&machine, w, threads]() -> std::function<Round()> {
            auto running = std::make_shared<RunningAttention>(w, threads);
            return [&machine, w, threads, running] {
              double peak = 0;
              for (int i = 0; i < kAttentionPeaks; ++i)
                peak = std::max(peak, machine.peak(threads));
              const StepTimes times = running->time(w.steps);
              return Round{times.median_seconds, times.flops / peak};
            };
          }};
}

}  // namespace

std::vector<Case> attention_cases(Machine& machine) {
  std::vector<Case> cases;
  for (const AttentionWork& w : kAttention) {
    for (int threads = 1; threads <= kMaxThreads; ++threads)
      cases.push_back(attention_case(machine, w, threads));
  }
  return cases;
}

}  // namespace sluice::bench
