#include <fmt/core.h>

#include <algorithm>
#include <memory>

#include "bench/figure.h"
#include "bench/steps.h"
#include "sluice/devices/cpu_device.h"
#include "sluice/models/gpt/generate.h"
#include "sluice/models/model.h"
#include "sluice/session/session.h"

namespace sluice::bench {
namespace {

constexpr int kModelPeaks = 5;
constexpr double kRate = 1e-3;

/// A training step with AdamW, or inference, of a model of the registry.
struct Work {
  const char* model;
  bool trains;
  int64_t batch;
  int64_t steps;          // Steps of a round.
  double of_pytorch = 0;  // Goals; 0 for none.
  double of_the_peak = 0;
  // Sizes of a language model.
  int64_t blocks = 0, heads = 0, width = 0, context = 0;
};
constexpr int64_t kCharacters = 65;  // The vocabulary of language models.
constexpr Work kWork[] = {
    {"mnist-cnn", true, 40, 200, 4, 0.5},
    {"mnist-cnn", true, 8, 500, 5},
    {"mnist-cnn", false, 1, 1000, 6},
    {"mnist-cnn", false, 8, 1000, 6},
    {"resnet8", true, 32, 40},
    {"resnet8", false, 1, 500},
    {"resnet18", true, 32, 3, 1},
    {"resnet18", false, 1, 40, 1},
    {"gpt", true, 8, 3, 1.15, 0.65, 6, 6, 384, 256},
    {"gpt", true, 16, 60, 2.5, 0, 2, 4, 64, 32},
};

models::Sizes sizes_of(const Work& w) {
  models::Sizes sizes;
  (w.trains ? sizes.micro_batch : sizes.eval_batch) = w.batch;
  if (w.blocks > 0) {
    sizes.blocks = w.blocks;
    sizes.heads = w.heads;
    sizes.width = w.width;
    sizes.context = w.context;
    sizes.vocabulary = kCharacters;
  }
  return sizes;
}

// "gpt of 6 blocks of width 384".
std::string name_of(const Work& w) {
  return w.blocks == 0 ? w.model
                       : fmt::format("{} of {} blocks of width {}", w.model, w.blocks, w.width);
}

std::string pytorch_request(const Work& w, int threads) {
  if (w.blocks == 0)
    return fmt::format("model {} {} {} {} {}", w.model, w.trains ? "train" : "infer", w.batch,
                       threads, w.steps);
  return fmt::format("gpt {} {} {} {} {} {} {} {}", kCharacters, w.context, w.width, w.heads,
                     w.blocks, w.batch, threads, w.steps);
}

// A model's programs in a session, with arrays for one of them.
class RunningModel {
 public:
  RunningModel(const Work& w, int threads)
      : training_(train::build_training(ir_, models::find_model(w.model).build(sizes_of(w)),
                                        nn::Optimizer::adamw(), {.learning_rate = kRate})),
        session_(ir_, {.device = cpu_device({.threads = threads})}),
        binding_(bind(w.trains ? "train" : "eval")) {}

  StepTimes time(int64_t steps) { return time_steps(session_, binding_, steps); }

 private:
  // Makes an array for each stream: normal numbers, and labels below the classes of every model.
  Binding bind(const std::string& program) {
    const auto expected = session_.expected_inputs(program);
    for (const auto& [stream, spec] : expected) {
      HostTensor array = Initializer::normal(0, 1).keyed({1, 2}).evaluate({spec.shape, f32, {}});
      if (spec.dtype != f32) {
        int label = 0;
        for (float& x : array.as<float>()) x = static_cast<float>(label++ % 10);
      }
      inputs_.push_back(array.cast(spec.dtype));
    }
    std::vector<StreamInput> inputs;
    for (size_t i = 0; i < expected.size(); ++i) inputs.push_back({expected[i].first, inputs_[i]});
    const HostTensors results = session_.run(inputs, program);
    std::vector<D2hStream> streams = training_.eval_predictions;
    if (program == "train") {
      streams = training_.losses;
      streams.insert(streams.end(), training_.predictions.begin(), training_.predictions.end());
    }
    std::vector<StreamOutput> outputs;
    outputs_.reserve(streams.size());
    for (const D2hStream& s : streams) outputs.push_back({s, outputs_.emplace_back(results[s])});
    return session_.bind(inputs, outputs, program);
  }

  Ir ir_;
  train::Training training_;
  Session session_;
  std::vector<HostTensor> inputs_, outputs_;
  Binding binding_;
};

/// Generation of a language model: a token at batch 1 with a cache.
struct Decoding {
  int64_t blocks, heads, width, context;
  double of_pytorch;  // Goal.
};
constexpr Decoding kDecodings[] = {{6, 6, 384, 256, 1.5}, {4, 4, 128, 64, 4}};
constexpr int64_t kGeneratedSequences = 5;  // Sequences of a round.
constexpr int kPyTorchTokens = 500;

// Generates whole sequences.
class RunningDecoding {
 public:
  RunningDecoding(const Decoding& d, int threads)
      : context_(d.context),
        generator_({.blocks = d.blocks,
                    .heads = d.heads,
                    .kv_heads = d.heads,
                    .width = d.width,
                    .context = d.context,
                    .vocabulary = kCharacters},
                   {.device = cpu_device({.threads = threads})}) {
    generator_.session().each_variable([&](const std::string& path, const HostTensor& value) {
      if (!path.starts_with("cache.")) weight_bytes_ += value.spec().bytes();
    });
  }
  int64_t weight_bytes() const { return weight_bytes_; }
  // Returns the mean seconds of a token after the first one of a sequence, which the prompt needs.
  double token_seconds() {
    const double whole = seconds(context_ - 1), first = seconds(1);
    return (whole - first) / static_cast<double>(context_ - 2);
  }

 private:
  double seconds(int64_t tokens) {
    std::vector<double> times;
    for (int64_t i = 0; i < kGeneratedSequences; ++i) {
      const double begin = seconds_now();
      generator_.generate(prompt_, {.tokens = tokens}, [](int32_t) { return true; });
      times.push_back(seconds_now() - begin);
    }
    return median(times);
  }

  int64_t context_;
  models::Generator generator_;
  int64_t weight_bytes_ = 0;
  std::vector<int32_t> prompt_ = {0};
};

// The limit is the time in which the threads read all weights.
Case decoding_case(Machine& machine, const Decoding& d, int threads) {
  Case c{.group = "model",
         .name = fmt::format("gpt of {} blocks of width {}, a token", d.blocks, d.width),
         .threads = threads,
         .goals = {{Goal::Of::kPyTorch, d.of_pytorch}},
         .pytorch = fmt::format("decode {} {} {} {} {} {} {}", kCharacters, d.context, d.width,
                                d.heads, d.blocks, threads, kPyTorchTokens)};
  c.start = [&machine, d, threads]() -> std::function<Round()> {
    auto running = std::make_shared<RunningDecoding>(d, threads);
    auto weights = std::make_shared<Memory>(running->weight_bytes());
    std::fill_n(weights->bytes(), running->weight_bytes(), std::byte{0});
    return [&machine, threads, running, weights] {
      const double limit = machine.read_seconds(*weights, running->weight_bytes(), threads, 0.02);
      return Round{running->token_seconds(), limit};
    };
  };
  return c;
}

Case model_case(Machine& machine, const Work& w, int threads) {
  Case c{.group = "model",
         .name = fmt::format("{} {}, batch {}", name_of(w),
                             w.trains ? "training with AdamW" : "inference", w.batch),
         .threads = threads,
         .pytorch = pytorch_request(w, threads)};
  if (w.of_pytorch > 0) c.goals.push_back({Goal::Of::kPyTorch, w.of_pytorch});
  if (w.of_the_peak > 0) c.goals.push_back({Goal::Of::kPart, w.of_the_peak});
  c.start = [&machine, w, threads]() -> std::function<Round()> {
    auto running = std::make_shared<RunningModel>(w, threads);
    return [&machine, w, threads, running] {
      double peak = 0;
      for (int i = 0; i < kModelPeaks; ++i) peak = std::max(peak, machine.peak(threads));
      const StepTimes times = running->time(w.steps);
      return Round{times.median_seconds, times.flops / peak};
    };
  };
  return c;
}

}  // namespace

std::vector<Case> model_cases(Machine& machine) {
  std::vector<Case> cases;
  for (const Work& w : kWork) {
    for (int threads = 1; threads <= kMaxThreads; ++threads)
      cases.push_back(model_case(machine, w, threads));
  }
  for (const Decoding& d : kDecodings) {
    for (int threads = 1; threads <= kMaxThreads; ++threads)
      cases.push_back(decoding_case(machine, d, threads));
  }
  return cases;
}

}  // namespace sluice::bench
