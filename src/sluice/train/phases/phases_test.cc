#include "sluice/train/phases/phases.h"
#include "sluice/devices/cpu_device.h"
#include "sluice/exe/executable.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <span>

#include "sluice/base/hash.h"
#include "sluice/exe/memory_needs.h"
#include "sluice/exe/visit_step.h"
#include "sluice/nn/block.h"
#include "sluice/nn/layers.h"
#include "sluice/report/traffic.h"
#include "sluice/session/session.h"

namespace sluice::train {
namespace {

// The network of document 000.
struct FourLayers : nn::Module {
  Tensor build(nn::Builder& b, Tensor x) const {
    for (const auto* layer : {&fc1, &fc2, &fc3}) x = ops::gelu((*layer)(b, x));
    return fc4(b, x);
  }
  nn::Child<nn::Linear> fc1{*this, "fc1", 512}, fc2{*this, "fc2", 512}, fc3{*this, "fc3", 512},
      fc4{*this, "fc4", 10};
};

// Number of entries by the buffer's spec and the shape of the whole tensor.
using Entries = std::multimap<std::string, int64_t>;
Entries buffers(const Ir& ir) {
  Entries all;
  for (int32_t b = 1; b <= ir.remote_buffer_count(); ++b) {
    const RemoteBufferInfo& info = ir.remote_buffer_info(b);
    std::string text = to_string(TensorSpec{info.spec.shape, info.spec.dtype, {}});
    if (!info.spec.meta_shape.empty()) text += " of " + to_string(info.spec.meta_shape);
    all.emplace(text, info.entries);
  }
  return all;
}

// Counts the collectives in one run of a function, by operator.
void count_collectives(const exe::Executable& e, int32_t function, int64_t times,
                       std::map<std::string, int64_t>& counts) {
  for (const exe::Step& step : e.functions[exe::FunctionId(function)].steps) {
    if (const auto* c = std::get_if<exe::Collective>(&step.body)) counts[c->op] += times;
    const auto* loop = std::get_if<exe::Loop>(&step.body);
    exe::for_each_call(step, [&](const exe::Call& c) {
      count_collectives(e, c.function, loop == nullptr ? times : times * loop->trips, counts);
    });
  }
}

// Checks the remote traffic of each replica in one run of document 000's program.
void expect_traffic_of_the_document(const exe::Executable& executable) {
  const exe::Program& program = executable.program("train");
  for (const auto& s : program.streams) EXPECT_EQ(s.entries, 4);
  int64_t loads = 0, loaded = 0, stores = 0, stored = 0;
  for (const report::Traffic& t : report::TrafficCounter(executable).of(program)) {
    const bool in = t.kind == exe::TransferKind::kRemoteLoad;
    if (!in && t.kind != exe::TransferKind::kRemoteStore) continue;
    (in ? loads : stores) += t.transfers;
    (in ? loaded : stored) += t.bytes;
  }
  EXPECT_EQ(loads, 78);
  EXPECT_EQ(loaded, 7337572);
  EXPECT_EQ(stores, 64);
  EXPECT_EQ(stored, 5352036);
  std::map<std::string, int64_t> collectives;
  count_collectives(executable, program.starts[0].function, 1, collectives);
  EXPECT_EQ(collectives, (std::map<std::string, int64_t>{{"ReplicatedAllGather", 13},
                                                         {"ReplicatedReduceScatter", 7},
                                                         {"ReplicatedAllReduce", 1}}));
}

// The buffers of document 000's program are listed in appendix B of the reference's specification.
TEST(Phases, SevenPhasesHaveTheBuffersAndTheTrafficOfTheDocument) {
  Ir ir(2);
  build_training(ir, classifier(FourLayers(), f32_spec({8, 784})), nn::Optimizer::adam_f16(),
                 {.strategy = phased(),
                  .accumulate = 4,
                  .locations = {.optimizer = Location::kRemote,
                                .weights = Location::kRemote,
                                .activations = Location::kRemote,
                                .min_elements_sharded = 512}});
  const Entries variables{{"(200704,) float32 of (784, 512)", 1},
                          {"(200704,) float16 of (784, 512)", 1},
                          {"(200704,) float32 of (784, 512)", 1},
                          {"(131072,) float32 of (512, 512)", 2},
                          {"(131072,) float16 of (512, 512)", 2},
                          {"(131072,) float32 of (512, 512)", 2},
                          {"(2560,) float32 of (512, 10)", 1},
                          {"(2560,) float16 of (512, 10)", 1},
                          {"(2560,) float32 of (512, 10)", 1},
                          {"(256,) float32 of (512,)", 1},
                          {"(256,) float16 of (512,)", 1},
                          {"(256,) float32 of (512,)", 1},
                          {"(256,) float32 of (512,)", 2},
                          {"(256,) float16 of (512,)", 2},
                          {"(256,) float32 of (512,)", 2},
                          {"(10,) float32", 1},
                          {"(10,) float16", 1},
                          {"(10,) float32", 1}};
  // The inputs of fc1; those of gelu, by layer; the values and the gradients between the layers.
  Entries want{{"(8, 784) float32", 4},
               {"(8, 512) float32", 4},
               {"(8, 512) float32", 8},
               {"(8, 512) float32", 12},
               {"(8, 512) float32", 12}};
  want.insert(variables.begin(), variables.end());
  const auto sorted = [](const Entries& e) {
    std::vector<std::pair<std::string, int64_t>> list(e.begin(), e.end());
    std::sort(list.begin(), list.end());
    return list;
  };
  EXPECT_EQ(sorted(buffers(ir)), sorted(want));
  const Session session(ir, {.device = cpu_device()});  // Session verifies the plan.
  expect_traffic_of_the_document(session.executable());
}

// Layers that read two values of the run, one of them the learning rate, and one weight of all.
class SharedLayers : public nn::Module {
 public:
  explicit SharedLayers(size_t depth) : depth_(depth) {
    for (size_t i = 0; i < depth; ++i) layers_.add(kWidth);
  }
  Results build(nn::Builder& b, const Inputs& in) const {
    const Tensor shared = b.add_variable_input("shared", nn::normal(0, 0.3), {kWidth, kWidth});
    Tensor x = in["x"];
    for (size_t i = 0; i < depth_; ++i) {
      const nn::Block block(b, fmt::format("layers.{}", i));
      x = ops::gelu(layers_[i](b, x) + ops::matmul(x, shared)) * in["scale"];
    }
    const nn::Block block(b, "last");
    const Tensor logits = last_(b, x) * (in["rate"] + 1.0);
    if (in.mode() == nn::RunMode::kEvaluate) return {.predictions = {{"logits", logits}}};
    return {.losses = {cross_entropy(logits, in["labels"])}};
  }
  static constexpr int64_t kWidth = 6;

 private:
  size_t depth_;
  nn::Children<nn::Linear> layers_{*this, "layers"};
  nn::Child<nn::Linear> last_{*this, "last", 3};
};

Network shared_layers(size_t depth) {
  const TensorSpec number = f32_spec({});
  return {SharedLayers(depth),
          {{.name = "x", .spec = f32_spec({4, SharedLayers::kWidth})},
           {.name = "labels", .spec = i32_spec({4})},
           {.name = "scale", .spec = number, .once = true},
           {.name = "rate", .spec = number, .once = true}}};
}

struct PhasesRun {
  std::string digest;
  size_t steps = 0;
  int64_t persistent_bytes = 0;
};

// Runs two updates and an evaluation.
PhasesRun run_updates(const Network& network, Options options, int replicas) {
  options.accumulate = 3;
  options.learning_rate = StreamedRate{"rate"};
  Ir ir(replicas);
  const Training t = build_training(ir, network, nn::Optimizer::adam(), options);
  Session session(ir,
                  {.device = cpu_device(),
                   .more_devices = std::vector(static_cast<size_t>(t.devices) - 1, cpu_device()),
                   .remote = "host"});
  EXPECT_EQ(session.planned_bytes(), session.measured_bytes());
  std::vector<HostTensor> values;
  values.reserve(16);
  float next = 0;
  const auto filled = [&](const H2dStream& stream, int64_t entries) {
    HostTensor& value = values.emplace_back(
        TensorSpec{entries_shape(stream.spec.shape, entries, replicas), stream.spec.dtype, {}});
    if (stream.spec.dtype == i32) {
      for (int32_t& v : value.as<int32_t>()) v = static_cast<int32_t>(next += 1) % 3;
    } else if (entries > 1 || !stream.spec.shape.empty()) {
      for (float& v : value.as<float>()) v = std::sin(next += 1.5f);
    } else {
      std::ranges::fill(value.as<float>(), 0.125f);
    }
    return StreamInput{stream, value};
  };
  Digest digest;
  for (int update = 0; update < 2; ++update) {
    std::vector<StreamInput> inputs;
    for (const H2dStream& s : t.fields) inputs.push_back(filled(s, 3));
    for (const H2dStream& s : t.inputs) inputs.push_back(filled(s, 1));
    inputs.push_back(filled(*t.learning_rate, 1));
    digest.add(session.run(inputs, "train")[t.losses[0]].bytes());
  }
  session.each_variable([&](const std::string& path, const HostTensor& value) {
    digest.add(std::as_bytes(std::span(path)));
    digest.add(value.bytes());
  });
  std::vector<StreamInput> inputs;
  for (const H2dStream& s : t.eval_fields) inputs.push_back(filled(s, 1));
  digest.add(session.run(inputs, "eval")[t.eval_predictions[0]].bytes());
  PhasesRun outcome{.digest = digest.hex()};
  for (const exe::Function& f : session.executable().functions) outcome.steps += f.steps.size();
  outcome.persistent_bytes = exe::memory_needs(session.executable())[0].persistent_bytes;
  return outcome;
}

TEST(Phases, ValuesOfARunAndATiedWeightHaveTheBitsOfTheResidentStep) {
  for (const int replicas : {1, 2}) {
    for (const bool clips : {false, true}) {
      const std::optional<double> norm = clips ? std::optional(0.05) : std::nullopt;
      for (const size_t depth : {3, 12}) {
        const PhasesRun want = run_updates(shared_layers(depth), {.max_grad_norm = norm}, replicas);
        TensorLocations locations = TensorLocations::phased();
        locations.min_elements_sharded = replicas > 1 ? 8 : nn::kNeverShard;
        if (replicas > 1) locations.accumulators = Location::kRemote;
        for (const IoMode mode : {IoMode::kIo, IoMode::kIoOverlapped}) {
          const Options phases{
              .strategy = phased(), .locations = locations, .io_mode = mode, .max_grad_norm = norm};
          EXPECT_EQ(run_updates(shared_layers(depth), phases, replicas).digest, want.digest)
              << replicas << clips << depth << static_cast<int>(mode);
        }
        EXPECT_EQ(run_updates(shared_layers(depth), {.strategy = phased(), .max_grad_norm = norm},
                              replicas)
                      .digest,
                  want.digest);
      }
    }
  }
}

// The sum of a tied weight's gradients is carried, so that its readers are rows of a loop.
TEST(Phases, EqualBlocksWithATiedWeightRunInALoop) {
  const Options options{.strategy = phased(), .locations = TensorLocations::phased()};
  EXPECT_EQ(run_updates(shared_layers(6), options, 1).steps,
            run_updates(shared_layers(12), options, 1).steps);
}

// The tied weight and its gradients cross the border of the stages.
TEST(Phases, InStagesHaveTheBitsOfTheResidentStepAndDoNotGrowWithDepth) {
  for (const bool clips : {false, true}) {
    const std::optional<double> norm = clips ? std::optional(0.05) : std::nullopt;
    Options options{.strategy = PhasedExecution{.stages = 2},
                    .locations = TensorLocations::phased(),
                    .max_grad_norm = norm};
    if (clips) options.locations.accumulators = Location::kRemote;
    std::vector<size_t> steps;
    for (const size_t depth : {12, 20}) {
      const PhasesRun got = run_updates(shared_layers(depth), options, 1);
      EXPECT_EQ(got.digest, run_updates(shared_layers(depth), {.max_grad_norm = norm}, 1).digest)
          << clips << depth;
      steps.push_back(got.steps);
    }
    if (!clips) {
      EXPECT_EQ(steps[0], steps[1]);  // The norm reads the squares of each block.
    }
  }
}

// A threshold of 9 keeps biases and scalars on the device, and 40 all variables.
TEST(Phases, KeepSmallTensorsOnTheDevice) {
  for (const bool clips : {false, true}) {
    const std::optional<double> norm = clips ? std::optional(0.05) : std::nullopt;
    const std::string want = run_updates(shared_layers(4), {.max_grad_norm = norm}, 1).digest;
    Options options{
        .strategy = phased(), .locations = TensorLocations::phased(), .max_grad_norm = norm};
    if (clips) options.locations.accumulators = Location::kRemote;
    int64_t before = run_updates(shared_layers(4), options, 1).persistent_bytes;
    for (const int64_t threshold : {9, 40}) {
      options.locations.min_elements_off_device = threshold;
      const PhasesRun got = run_updates(shared_layers(4), options, 1);
      EXPECT_EQ(got.digest, want) << threshold << clips;
      EXPECT_GT(got.persistent_bytes, before) << threshold << clips;
      before = got.persistent_bytes;
    }
  }
}

}  // namespace
}  // namespace sluice::train
