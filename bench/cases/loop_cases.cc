#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "bench/figure.h"
#include "bench/program.h"
#include "bench/training_steps.h"

namespace sluice::bench {
namespace {

constexpr int64_t kRuns = 200;
constexpr int64_t kIterations = 200;
constexpr int64_t kWaiting = 255;  // Elements of a feed that wait for a run; at least kTurns.
constexpr int64_t kSteps = 10'000;
constexpr int64_t kStepsOfCall = 10;
constexpr int64_t kBatch = 32;
constexpr int64_t kPixels = 784;

// Elements of zeros.
struct Zeros : FeedSource {
  bool next(std::span<const ArrayView> fields) override {
    for (const ArrayView& field : fields) std::fill_n(field.data, field.spec.bytes(), std::byte{0});
    ++made;
    return true;
  }
  std::atomic<int64_t> made{0};
};

// How a program runs its iterations. An iteration is one small kernel.
enum class LoopForm { kUnrolled, kLoop, kFed };

class IterationsProgram {
 public:
  IterationsProgram(LoopForm form, int64_t iterations, int threads) {
    Graph& main = ir_.main_graph();
    const TensorSpec one{{1}, f32};
    const Tensor total = main.variable(one, Initializer::constant(0), "total");
    const Tensor step = main.variable(one, Initializer::constant(1), "step");
    if (form == LoopForm::kFed) {
      const Infeed in = ir_.infeed("x", {{"x", one}}, {.prefetch_depth = kWaiting});
      ops::repeat(
          main, iterations, [&](Tensor x) { ops::add_(total, x); }, {}, in);
      source_ = std::make_shared<Zeros>();
      open(threads);
      session_->bind_feed(in, source_);
      return;
    }
    const auto iteration = [&] { ops::add_(total, step); };
    if (form == LoopForm::kLoop) {
      ops::repeat(main, iterations, iteration);
    } else {
      for (int64_t i = 0; i < iterations; ++i) iteration();
    }
    open(threads);
  }

  // The median time of a run. The elements that it reads are ready when it begins.
  double seconds() {
    if (!source_) return time_steps(*session_, binding_, kRuns).median_seconds;
    std::vector<double> times;
    for (int64_t i = 0; i <= kRuns; ++i) {
      // A feed has no thread before the first run.
      while (read_ > 0 && source_->made < read_ + kWaiting)
        std::this_thread::sleep_for(std::chrono::microseconds(20));
      const double begin = seconds_now();
      session_->run_into(binding_);
      if (i > 0) times.push_back(seconds_now() - begin);
      read_ += kIterations;
    }
    return median(times);
  }

 private:
  // Without fusion: consecutive iterations would become one kernel.
  void open(int threads) {
    session_ = std::make_unique<Session>(
        ir_, SessionOptions{.device = cpu_device({.threads = threads}), .disable = {"fuse"}});
    binding_ = session_->bind({}, {});
  }

  Ir ir_;
  std::shared_ptr<Zeros> source_;
  int64_t read_ = 0;
  std::unique_ptr<Session> session_;
  Binding binding_;
};

Case host_call(int threads) {
  return {.group = "loop",
          .name = "host call of one small kernel",
          .threads = threads,
          .unit = Unit::kMicroseconds,
          .goals = {{Goal::Of::kAtMost, 5}},
          .start = [threads]() -> std::function<Round()> {
            return
                [program = std::make_shared<IterationsProgram>(LoopForm::kUnrolled, 1, threads)] {
                  return Round{program->seconds(), {}};
                };
          }};
}

// The additional time of an iteration in one form over that in another form.
Case iteration_case(std::string name, double max, LoopForm form, LoopForm less, int threads) {
  return {.group = "loop",
          .name = std::move(name),
          .threads = threads,
          .unit = Unit::kNanoseconds,
          .goals = {{Goal::Of::kAtMost, max}},
          .start = [=]() -> std::function<Round()> {
            return [more = std::make_shared<IterationsProgram>(form, kIterations, threads),
                    base = std::make_shared<IterationsProgram>(less, kIterations, threads)] {
              const double beyond = more->seconds() - base->seconds();
              return Round{std::max(beyond / kIterations, 1e-10), {}};
            };
          }};
}

// Training of 784-128-10 on batches of digits' size, one step a call or several in a loop.
class Steps {
 public:
  explicit Steps(int64_t steps_of_call, int threads) : calls_(kSteps / steps_of_call) {
    Graph& main = ir_.main_graph();
    const TensorSpec image{{kBatch, kPixels}, f32}, label{{kBatch}, i32};
    const auto [factories, forward] = nn::create_graph(ir_, Mlp({kPixels, 128, 10}), image);
    const nn::NamedTensors weights = factories.init(main);
    const nn::GraphWithNamedArgs backward =
        forward.autodiff({.grads_required = forward.args().tensors()});
    const auto& info = backward.grad_graph_info();
    const auto step = [&](const Tensor& x, const Tensor& y) {
      const CallSiteInfo call = forward.bind(weights).call_with_info(x);
      const auto [loss, gradient] = ops::cross_entropy_with_grad(call.output(0), y);
      const CallSiteInfo back = backward.call_with_info(gradient, info.inputs_dict(call));
      const auto gradients = info.fwd_parent_ins_to_grad_parent_outs(call, back);
      weights.for_each([&](const std::string&, const Tensor& w) {
        ops::scaled_add_(w, gradients.at(w), 1, -0.01);
      });
    };
    const SessionOptions options{.device = cpu_device({.threads = threads})};
    if (steps_of_call > 1) {
      const Infeed in = ir_.infeed("digits", {{"image", image}, {"label", label}});
      ops::repeat(
          main, steps_of_call, [&](const LoopArguments& a) { step(a["image"], a["label"]); }, {},
          in);
      session_ = std::make_unique<Session>(ir_, options);
      session_->bind_feed(in, std::make_shared<Zeros>());
      binding_ = session_->bind({}, {});
      return;
    }
    const H2dStream x = ir_.h2d_stream(image, "image"), y = ir_.h2d_stream(label, "label");
    step(main.host_load(x), main.host_load(y));
    session_ = std::make_unique<Session>(ir_, options);
    images_ = HostTensor(image);
    labels_ = HostTensor(label);
    binding_ = session_->bind({{x, images_}, {y, labels_}}, {});
  }

  double seconds() {
    const double begin = seconds_now();
    for (int64_t i = 0; i < calls_; ++i) session_->run_into(binding_);
    return seconds_now() - begin;
  }

 private:
  const int64_t calls_;
  Ir ir_;
  HostTensor images_, labels_;
  std::unique_ptr<Session> session_;
  Binding binding_;
};

// The documents measured 23.77 s for the calls and 14.62 s for the loops: a ratio of 1.63.
Case calls_and_loops(int threads) {
  return {.group = "loop",
          .name = "10,000 MNIST steps, 10 a call; limit: 1 a call (document: 14.62 s; 23.77 s)",
          .threads = threads,
          .unit = Unit::kMilliseconds,
          .start = [threads]() -> std::function<Round()> {
            return [loops = std::make_shared<Steps>(kStepsOfCall, threads),
                    calls = std::make_shared<Steps>(1, threads)] {
              return Round{loops->seconds(), calls->seconds()};
            };
          }};
}

// Training of 784-hidden-10 on micro-batches that a generator makes while the device computes.
class FedSteps {
 public:
  FedSteps(int64_t hidden, int threads) {
    const train::Network network =
        train::classifier(Mlp({kPixels, hidden, 10}), {{kFedBatch, kPixels}, f32});
    train::Options options{.accumulate = kMicroBatches, .device_iterations = kStepsOfCall};
    const SessionOptions session{.device = cpu_device({.threads = threads})};
    const nn::Optimizer sgd = nn::Optimizer::sgd();
    arrays_ = std::make_unique<TrainingSteps>(network, sgd, options, session);
    options.infeed = std::make_shared<data::InfeedQueue>(
        data::from_function(data::kForever, [](int64_t) { return generated(); }));
    fed_ = std::make_unique<TrainingSteps>(network, sgd, options, session);
  }

  // The limit is the longer of a step on arrays and of the generator's time for a step.
  Round round() {
    const double computes = arrays_->seconds(kFedRuns) / kStepsOfCall;
    const double begin = seconds_now();
    for (int64_t i = 0; i < kRuns; ++i) generated();
    const double makes = (seconds_now() - begin) / kRuns * kMicroBatches;
    return {fed_->seconds(kFedRuns) / kStepsOfCall, std::max(computes, makes)};
  }

 private:
  static constexpr int64_t kFedBatch = 8;
  static constexpr int64_t kMicroBatches = 4;
  static constexpr int64_t kFedRuns = 20;

  // Computes for 100 us.
  static data::Element generated() {
    const double end = seconds_now() + 100e-6;
    data::Element element{{"input", HostTensor({{kFedBatch, kPixels}, f32, {}})},
                          {"labels", HostTensor({{kFedBatch}, i32, {}})}};
    while (seconds_now() < end) {
    }
    return element;
  }

  std::unique_ptr<TrainingSteps> arrays_, fed_;
};

Case fed_step(const char* longer, int64_t hidden) {
  return {
      .group = "loop",
      .name = fmt::format("fed step of 4 micro-batches of 100 us; limit: the {}'s time", longer),
      .threads = 1,
      .unit = Unit::kMicroseconds,
      .goals = {{Goal::Of::kPart, 1 / 1.05}},
      .start = [hidden]() -> std::function<Round()> {
        return [steps = std::make_shared<FedSteps>(hidden, 1)] { return steps->round(); };
      }};
}

}  // namespace

// Loops on the device: the cost of a call, of an iteration, and of an element of a feed. Either the
// steps wait for the data, or the data for the steps.
std::vector<Case> loop_cases() {
  std::vector<Case> cases;
  for (const int threads : {1, 2}) {
    cases.push_back(host_call(threads));
    cases.push_back(iteration_case("iteration beyond its kernel", 500, LoopForm::kLoop,
                                   LoopForm::kUnrolled, threads));
    cases.push_back(
        iteration_case("entry of a ready feed", 2000, LoopForm::kFed, LoopForm::kLoop, threads));
    cases.push_back(calls_and_loops(threads));
  }
  cases.push_back(fed_step("generator", 32));
  cases.push_back(fed_step("device", 512));
  return cases;
}

}  // namespace sluice::bench
