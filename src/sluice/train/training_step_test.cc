#include "sluice/train/training_step.h"
#include "sluice/devices/cpu_device.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <filesystem>

#include "sluice/base/failpoint.h"
#include "sluice/base/hash.h"
#include "sluice/base/sys.h"
#include "sluice/base/test_refusals.h"
#include "sluice/exe/executable.h"
#include "sluice/exe/memory_needs.h"
#include "sluice/nn/layers.h"
#include "sluice/ops/losses.h"
#include "sluice/session/session.h"

namespace sluice::train {
namespace {

// A classifier whose logits are the result of a function.
struct LogitsOf : nn::Module {
  explicit LogitsOf(std::function<Tensor(nn::Builder&, const Inputs&)> f) : logits(std::move(f)) {}
  Results build(nn::Builder& b, const Inputs& in) const {
    const Tensor y = logits(b, in);
    if (in.mode() == nn::RunMode::kEvaluate) return {.predictions = {{"logits", y}}};
    return {.losses = {cross_entropy(y, in["labels"])}};
  }
  std::function<Tensor(nn::Builder&, const Inputs&)> logits;
};

class StepLayer : public nn::Module {
 public:
  StepLayer(int64_t width, double dropout) : width_(width), dropout_(dropout) {}
  Tensor build(nn::Builder& b, Tensor x) const {
    const Tensor y = ops::gelu(nn::Linear(width_).build(b, x));
    return b.inlined("dropout", nn::Dropout(dropout_), y);
  }

 private:
  int64_t width_;
  double dropout_;
};

class Net : public nn::Module {
 public:
  Net(const std::vector<int64_t>& widths, double dropout) {
    for (const int64_t width : widths) layers_.add(width, dropout);
  }
  Tensor build(nn::Builder& b, Tensor x) const {
    for (const auto& layer : layers_) x = layer(b, x);
    return last_(b, x);
  }

 private:
  nn::Children<StepLayer> layers_{*this, "fc"};
  nn::Child<nn::Linear> last_{*this, "last", 3};
};

// `widths` are those of the hidden layers. Neighbours with equal widths share their graphs.
Network model(const std::vector<int64_t>& widths, double dropout) {
  return classifier(Net(widths, dropout), f32_spec({4, 6}), {.eval_input = f32_spec({2, 6})});
}

constexpr Location kRemote = Location::kRemote;
constexpr TensorLocations kActivations{.activations = kRemote};
constexpr TensorLocations kActivationsAndState{.optimizer = kRemote, .activations = kRemote};
constexpr TensorLocations kActivationsAndWeights{.weights = kRemote, .activations = kRemote};
constexpr TensorLocations kAllRemote{
    .optimizer = kRemote, .weights = kRemote, .activations = kRemote};

struct StepWay {
  Options step;
  int threads = 1;
  std::string remote = "host";
  int replicas = 1;
  bool direct = false;
  bool verify = false;
  int io_queues = 1;
  std::vector<float> rates = {};  ///< Rate of each step, if the rate is streamed.
};

struct Result {
  std::string digest;
  std::vector<float> losses;
  int64_t device_bytes = 0;
  int64_t persistent_bytes = 0;
  size_t steps = 0;  ///< Steps in all functions of the plan.
  std::string note;
};

Training build(Ir& ir, const Network& m, const nn::Optimizer& optimizer, const StepWay& way) {
  Options options = way.step;
  options.seed = 5;
  return build_training(ir, m, optimizer, options);
}

SessionOptions session_options(const StepWay& way) {
  return {.device = cpu_device({.threads = way.threads}),
          .remote = way.remote,
          .remote_direct = way.direct,
          .verify_remote = way.verify,
          .io_queues = way.io_queues};
}

// Runs three steps and an evaluation of a training that was built for `way`.
Result run(Session& session, const Training& t, const StepWay& way) {
  const int64_t n = way.step.accumulate;
  HostTensor input({entries_shape(t.fields[0].spec.shape, n, way.replicas), f32, {}});
  HostTensor labels({entries_shape(t.fields[1].spec.shape, n, way.replicas), i32, {}});
  HostTensor seed({entries_shape({2}, n, way.replicas), u32, {}});
  HostTensor rate({entries_shape({}, 1, way.replicas), f32, {}});
  Result result;
  result.note = t.note;
  Digest digest;
  for (int step = 0; step < 3; ++step) {
    for (size_t i = 0; i < input.as<float>().size(); ++i)
      input.as<float>()[i] = std::sin(static_cast<float>(i + 100 * static_cast<size_t>(step)));
    for (size_t i = 0; i < labels.as<int32_t>().size(); ++i)
      labels.as<int32_t>()[i] = static_cast<int32_t>((i * 7 + static_cast<size_t>(step)) % 3);
    for (size_t i = 0; i < seed.as<uint32_t>().size(); ++i)
      seed.as<uint32_t>()[i] = static_cast<uint32_t>(i + 9 * static_cast<size_t>(step));
    std::vector<StreamInput> inputs{{t.fields[0], input}, {t.fields[1], labels}};
    if (t.seed) inputs.push_back({*t.seed, seed});
    if (t.learning_rate) {
      for (float& entry : rate.as<float>()) entry = way.rates[static_cast<size_t>(step)];
      inputs.push_back({*t.learning_rate, rate});
    }
    const HostTensors out = session.run(inputs, "train");
    digest.add(out[t.losses[0]].bytes());
    for (const float loss : out[t.losses[0]].as<float>()) result.losses.push_back(loss);
  }
  session.each_variable([&](const std::string& path, const HostTensor& value) {
    digest.add(std::as_bytes(std::span(path)));
    digest.add(value.bytes());
  });
  HostTensor batch({entries_shape(t.eval_fields[0].spec.shape, 1, way.replicas), f32, {}});
  for (size_t i = 0; i < batch.as<float>().size(); ++i)
    batch.as<float>()[i] = static_cast<float>(i) / 7;
  digest.add(session.run({{t.eval_fields[0], batch}}, "eval")[t.eval_predictions[0]].bytes());
  result.digest = digest.hex();
  result.device_bytes = session.planned_bytes();
  for (const exe::Function& f : session.executable().functions) result.steps += f.steps.size();
  result.persistent_bytes = exe::memory_needs(session.executable())[0].persistent_bytes;
  return result;
}

Result train(const Network& m, const nn::Optimizer& optimizer, const StepWay& way) {
  Ir ir(way.replicas);
  const Training t = build(ir, m, optimizer, way);
  Session session(ir, session_options(way));
  EXPECT_EQ(session.planned_bytes(), session.measured_bytes());
  return run(session, t, way);
}

std::vector<StepWay> phased_ways(int64_t accumulate) {
  std::vector<StepWay> ways;
  for (const IoMode mode : {IoMode::kCompute, IoMode::kIo, IoMode::kIoOverlapped}) {
    for (const bool recompute : {false, true}) {
      for (const TensorLocations& locations : {kActivations, kActivationsAndState, kAllRemote}) {
        StepWay way;
        way.step = {.strategy = phased(),
                    .accumulate = accumulate,
                    .locations = locations,
                    .io_mode = mode,
                    .recompute = {.all = recompute}};
        way.threads = 1 + static_cast<int>(ways.size()) % 3;
        way.remote = ways.size() % 2 == 0 ? "host" : "file:" + testing::TempDir();
        way.io_queues = !recompute ? 1 : 3;
        ways.push_back(way);
      }
    }
  }
  return ways;
}

TEST(TrainingStep, PhasesHaveTheBitsOfTheResidentStep) {
  const std::vector<std::pair<Network, nn::Optimizer>> cases{
      {model({8, 8, 8, 8}, 0.25), nn::Optimizer::adam()},
      {model({8, 5, 5, 8}, 0), nn::Optimizer::sgd({.momentum = 0.9})},
      {model({7}, 0.5), nn::Optimizer::sgd()},
      {model({}, 0), nn::Optimizer::adamw()},
      {model({8, 8}, 0), nn::Optimizer::adam_f16()},
      {model({6, 6}, 0), nn::Optimizer::lamb()},
      {model({5}, 0), nn::Optimizer::adamax()}};
  for (size_t c = 0; c < cases.size(); ++c) {
    const auto& [m, optimizer] = cases[c];
    for (const int64_t accumulate : {1, 2, 4}) {
      StepWay resident;
      resident.step.accumulate = accumulate;
      const Result expected = train(m, optimizer, resident);
      for (const float loss : expected.losses) EXPECT_TRUE(std::isfinite(loss));
      EXPECT_EQ(expected.losses.size(), static_cast<size_t>(3 * accumulate));
      resident.step.locations.optimizer = kRemote;
      EXPECT_EQ(train(m, optimizer, resident).digest, expected.digest);
      const auto ways = phased_ways(accumulate);
      // A way of each io mode. Its locations and recomputation rotate: each model has every pair of
      // io mode and locations.
      for (size_t mode = 0; mode < 3; ++mode) {
        const size_t draw = c + mode + static_cast<size_t>(accumulate) / 2;
        const size_t w = 6 * mode + 3 * (draw % 2) + draw % 3;
        const Result phased = train(m, optimizer, ways[w]);
        EXPECT_EQ(phased.digest, expected.digest)
            << "model " << c << " accumulate " << accumulate << " way " << w;
        EXPECT_EQ(phased.losses, expected.losses);
        const bool falls_back = ways[w].step.io_mode == IoMode::kIoOverlapped && accumulate == 1;
        EXPECT_EQ(phased.note.empty(), !falls_back) << phased.note;
      }
    }
  }
}

TEST(TrainingStep, AStreamedRateHasTheBitsOfAConstantOne) {
  const Network m = model({8, 8}, 0);
  for (const Strategy& strategy : {Strategy(resident()), Strategy(phased())}) {
    for (const int replicas : {1, 2}) {
      StepWay way{.replicas = replicas, .rates = {0.05F, 0.05F, 0.05F}};
      way.step = {.strategy = strategy, .accumulate = 2, .learning_rate = 0.05};
      const Result constant = train(m, nn::Optimizer::adam(), way);
      way.step.learning_rate = StreamedRate{};
      EXPECT_EQ(train(m, nn::Optimizer::adam(), way).digest, constant.digest);
      way.rates[1] = 0.025F;
      EXPECT_NE(train(m, nn::Optimizer::adam(), way).digest, constant.digest);
    }
  }
}

TEST(TrainingStep, OneProgramServesTwoRates) {
  const Network m = model({}, 0);
  Ir ir;
  const Training t =
      build_training(ir, m, nn::Optimizer::sgd(), {.learning_rate = StreamedRate{}, .seed = 5});
  Session session(ir);
  HostTensor input(t.fields[0].spec), labels(t.fields[1].spec), rate(f32_spec({}));
  for (float& x : input.as<float>()) x = 1;
  std::vector<NamedArray> first_values;
  session.each_variable([&](const std::string& path, HostTensor value) {
    first_values.push_back({path, std::move(value)});
  });
  const auto bias = [&](float value) {
    session.restore(first_values);
    rate.as<float>()[0] = value;
    session.run({{t.fields[0], input}, {t.fields[1], labels}, {*t.learning_rate, rate}}, "train");
    float after = 0;
    session.each_variable([&](const std::string& path, const HostTensor& b) {
      if (path == "last.bias") after = b.as<float>()[1];
    });
    return after;
  };
  const float one = bias(0.5F);
  EXPECT_NE(one, 0);
  EXPECT_EQ(bias(1.0F), 2 * one);
}

// The sizes of the weights are multiples of a cache line, so that alignment adds no bytes.
TEST(TrainingStep, AParameterOfShortAdamHasSixBytesOfState) {
  const Network m =
      classifier(StepLayer(64, 0), f32_spec({4, 32}), {.eval_input = f32_spec({2, 32})});
  const int64_t parameters = 32 * 64 + 64;
  const auto bytes = [&](const nn::Optimizer& optimizer, const TensorLocations& locations = {}) {
    return train(m, optimizer, {.step = {.locations = locations}}).persistent_bytes;
  };
  const int64_t weights = bytes(nn::Optimizer::sgd());
  EXPECT_EQ(bytes(nn::Optimizer::adam_f16()) - weights, 6 * parameters);
  EXPECT_EQ(bytes(nn::Optimizer::sgd({.momentum = 0.9})) - weights, 4 * parameters);
  EXPECT_EQ(bytes(nn::Optimizer::adam_f16(), {.optimizer = kRemote}), weights);
}

TEST(TrainingStep, ShardedUpdatesHaveTheBitsOfWholeOnesInLessMemory) {
  const Network m = model({16, 16}, 0.25);
  bool remote = false;  // Alternates: each size of shards has both values with each replica count.
  for (const auto& optimizer : {nn::Optimizer::adam(), nn::Optimizer::sgd({.momentum = 0.9})}) {
    for (const int replicas : {1, 2, 4}) {
      StepWay way;
      way.replicas = replicas;
      way.step.accumulate = 2;
      const Result expected = train(m, optimizer, way);
      for (const int64_t threshold : {0, 17, 256}) {
        remote = !remote;
        way.step.locations.min_elements_sharded = threshold;
        way.step.locations.optimizer = remote ? kRemote : Location::kDevice;
        way.threads = 1 + static_cast<int>(threshold % 3);
        const Result sharded = train(m, optimizer, way);
        EXPECT_EQ(sharded.digest, expected.digest) << replicas << " " << threshold;
        if (!remote && replicas > 1) {
          EXPECT_LT(sharded.persistent_bytes, expected.persistent_bytes);
        }
      }
      const auto ways = phased_ways(2);
      for (size_t w = 0; w < ways.size(); w += 7) {
        way = ways[w];
        way.replicas = replicas;
        way.step.locations.min_elements_sharded = 17;
        EXPECT_EQ(train(m, optimizer, way).digest, expected.digest) << replicas << " way " << w;
      }
    }
  }
}

// A bias with one element has one shard that equals the bias. The shards of all replicas but the
// first hold only padding.
TEST(TrainingStep, ShardsOfOneElementHaveTheBitsOfTheWhole) {
  const Network m = model({1, 1}, 0);
  for (const auto& optimizer : {nn::Optimizer::sgd(), nn::Optimizer::lamb()}) {
    StepWay way;
    way.replicas = 2;
    const Result expected = train(m, optimizer, way);
    way.step.locations.min_elements_sharded = 0;
    EXPECT_EQ(train(m, optimizer, way).digest, expected.digest);
    way.step.strategy = phased();
    EXPECT_EQ(train(m, optimizer, way).digest, expected.digest);
  }
}

// Norms are computed over whole tensors, even if each replica holds only a shard.
TEST(TrainingStep, LambAndClippingHaveTheSameBitsOnShards) {
  const Network m = model({16, 16}, 0.25);
  size_t draw = 0;
  const auto check = [&](const nn::Optimizer& optimizer, std::optional<double> max_grad_norm) {
    for (const int replicas : {1, 2, 4}) {
      StepWay way;
      way.replicas = replicas;
      way.step.accumulate = 2;
      const std::string free = train(m, optimizer, way).digest;
      way.step.max_grad_norm = max_grad_norm;
      const Result expected = train(m, optimizer, way);
      EXPECT_EQ(expected.digest == free, !max_grad_norm || *max_grad_norm > 1e6);
      for (const int64_t threshold : {0, 17, 512}) {
        way.step.locations.min_elements_sharded = threshold;
        way.step.locations.optimizer = threshold == 17 ? kRemote : Location::kDevice;
        way.threads = 1 + static_cast<int>(threshold % 3);
        EXPECT_EQ(train(m, optimizer, way).digest, expected.digest) << replicas << " " << threshold;
        if (max_grad_norm) continue;
        // The io mode rotates, so that it meets each threshold and number of replicas.
        StepWay phased = phased_ways(2)[2 + 6 * (draw++ % 3)];
        phased.replicas = replicas;
        phased.step.locations.min_elements_sharded = threshold;
        EXPECT_EQ(train(m, optimizer, phased).digest, expected.digest)
            << replicas << " " << threshold;
      }
      ++draw;
    }
  };
  check(nn::Optimizer::lamb(), std::nullopt);
  check(nn::Optimizer::lamb(), 0.01);
  check(nn::Optimizer::sgd({.momentum = 0.9}), 0.01);
  check(nn::Optimizer::sgd(), 1e7);
}

// Each replica has its own micro-batches; all replicas have the same model.
TEST(TrainingStep, ReplicasHaveTheBitsOfEachOtherUnderEveryStrategy) {
  const Network m = model({8, 8, 8}, 0.25);
  for (const int replicas : {2, 4}) {
    for (const int64_t accumulate : {1, 2}) {
      StepWay way;
      way.step.accumulate = accumulate;
      way.replicas = replicas;
      const Result expected = train(m, nn::Optimizer::adam(), way);
      EXPECT_EQ(expected.losses.size(), static_cast<size_t>(3 * accumulate * replicas));
      EXPECT_NE(expected.losses.end()[-1], expected.losses.end()[-2]);
      for (const int threads : {2, 3}) {
        way.threads = threads;
        EXPECT_EQ(train(m, nn::Optimizer::adam(), way).digest, expected.digest);
      }
      const auto ways = phased_ways(accumulate);
      for (size_t w = 0; w < ways.size(); w += 7) {
        StepWay phased = ways[w];
        phased.replicas = replicas;
        EXPECT_EQ(train(m, nn::Optimizer::adam(), phased).digest, expected.digest)
            << replicas << " replicas, accumulate " << accumulate << " way " << w;
      }
    }
  }
}

// Many rows run in loops. The depths leave each possible remainder after loops of three rows per
// iteration.
TEST(TrainingStep, LoopsOverRowsHaveTheBitsOfTheResidentStep) {
  bool state = false;  // Whether the state of the optimizer is remote too, in every other run.
  for (const size_t depth : {10, 11, 12}) {
    const Network m = model(std::vector<int64_t>(depth, 8), 0.25);
    for (const int replicas : {1, 2}) {
      StepWay way;
      way.step.accumulate = 2;
      way.replicas = replicas;
      const Result expected = train(m, nn::Optimizer::adam(), way);
      for (const IoMode mode : {IoMode::kCompute, IoMode::kIo, IoMode::kIoOverlapped}) {
        state = !state;
        way.step = {.strategy = phased(),
                    .accumulate = 2,
                    .locations = state ? kAllRemote : kActivationsAndWeights,
                    .io_mode = mode};
        if (replicas > 1) way.step.locations.min_elements_sharded = 17;
        way.threads = 1 + static_cast<int>(depth) % 3;
        way.io_queues = depth == 11 ? 3 : 1;
        way.remote = depth == 12 ? "file:" + testing::TempDir() : "host";
        EXPECT_EQ(train(m, nn::Optimizer::adam(), way).digest, expected.digest)
            << depth << " " << replicas << " " << static_cast<int>(mode) << " " << state;
      }
    }
  }
}

TEST(TrainingStep, NeitherThePeakNorThePlanOfPhasesGrowsWithDepth) {
  const auto optimizer = nn::Optimizer::adam();
  const auto deep_model = [](size_t depth) { return model(std::vector<int64_t>(depth, 64), 0); };
  for (const IoMode mode : {IoMode::kIo, IoMode::kIoOverlapped}) {
    const StepWay way{
        .step = {.strategy = phased(), .accumulate = 2, .locations = kAllRemote, .io_mode = mode}};
    const Result shallow = train(deep_model(6), optimizer, way);
    const Result deep = train(deep_model(12), optimizer, way);
    // The loop runs three rows per iteration; the rest run outside it. That rest has the same size
    // at depths 12, 15 and 30.
    for (const size_t depth : {15, 30}) {
      const Result deeper = train(deep_model(depth), optimizer, way);
      EXPECT_EQ(deeper.device_bytes, deep.device_bytes) << depth;
      EXPECT_EQ(deeper.steps, deep.steps) << depth;
    }
    // The device holds equally many blocks with and without a loop. The tolerance is one cache line
    // of the arena, which a scalar may add.
    EXPECT_NEAR(static_cast<double>(deep.device_bytes), static_cast<double>(shallow.device_bytes),
                64);
    StepWay resident;
    resident.step.accumulate = 2;
    EXPECT_LT(4 * deep.device_bytes, train(deep_model(12), optimizer, resident).device_bytes * 3);
  }
}

// Makes a system call fail while `act` runs. Returns the result of `act`, or its error.
template <typename Act>
std::string outcome_with(const sys::Failpoint& failpoint, const std::string& folder, Act act) {
  sys::set_failpoint(failpoint);
  std::string outcome;
  try {
    outcome = act();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kIo) << e.what();
    outcome = e.what();
  }
  sys::clear_failpoint();
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  return outcome;
}

// Fails each system call of `act` in turn with EIO, until `act` returns `expected`. Every 17th call
// is also interrupted and short. Returns the errors, which must name a file in the folder.
template <typename Act>
std::vector<std::string> fail_each_call(const std::string& expected, const std::string& folder,
                                        const StepWay& way, Act act) {
  std::vector<std::string> errors;
  for (int64_t number = 1; !testing::Test::HasFailure(); ++number) {
    const std::string outcome = outcome_with({.number = number, .code = EIO}, folder, act);
    if (outcome == expected) break;
    EXPECT_NE(outcome.find("a file in " + folder), std::string::npos) << number << ": " << outcome;
    errors.push_back(outcome);
    if (number % 17 != 1) continue;
    EXPECT_EQ(outcome_with({.number = number, .code = EINTR}, folder, act), expected) << number;
    // Direct files require transfers in units of the disk's block size; a short call would break
    // that.
    if (way.direct) continue;
    EXPECT_EQ(outcome_with({.number = number, .code = 0}, folder, act), expected) << number;
  }
  return errors;
}

// Each system call of a session and of its phased runs from a file fails in turn. After a failed
// run the session can start again. The runs also cover files with checksums and files that bypass
// the page cache.
TEST(TrainingStep, EverySystemCallOfAPhasedRunMayFail) {
  const std::string folder = testing::TempDir() + "sluice_faults_" + std::to_string(::getpid());
  sys::make_folder(folder);
  const Network m = model({8, 8}, 0.25);
  for (const IoMode mode : {IoMode::kCompute, IoMode::kIo, IoMode::kIoOverlapped}) {
    const StepWay way{
        .step = {.strategy = phased(), .accumulate = 2, .locations = kAllRemote, .io_mode = mode},
        .remote = "file:" + folder,
        .direct = mode == IoMode::kIoOverlapped && sys::can_bypass_page_cache(folder),
        .verify = mode != IoMode::kCompute};
    Ir ir;
    const Training training = build(ir, m, nn::Optimizer::adam(), way);
    SessionOptions options = session_options(way);
    Session session(ir, options);
    std::vector<NamedArray> first_values;
    session.each_variable([&](const std::string& path, HostTensor value) {
      first_values.push_back({path, std::move(value)});
    });
    const auto trains = [&] {
      session.restore(first_values);
      return run(session, training, way).digest;
    };
    const std::vector<std::string> errors = fail_each_call(trains(), folder, way, trains);
    EXPECT_GT(std::count_if(errors.begin(), errors.end(),
                            [](const std::string& e) {
                              return e.find(" of remote buffer remote") != std::string::npos;
                            }),
              100)
        << "transfers name their entry";
    options.proof = SessionOptions::Proof::kTrust;  // The session above has proved the plan.
    const auto begins = [&] {
      const Session other(ir, options);
      return std::string("begun");
    };
    EXPECT_FALSE(fail_each_call("begun", folder, way, begins).empty());
  }
  std::filesystem::remove_all(folder);
}

// Its layer has other features in evaluation.
struct TwoShapes : nn::Module {
  Results build(nn::Builder& b, const Inputs& in) const {
    const bool trains = in.mode() == nn::RunMode::kTrain;
    const Tensor logits = nn::Linear(trains ? 3 : 4).build(b, in["input"]);
    if (!trains) return {.predictions = {{"logits", logits}}};
    return {.losses = {cross_entropy(logits, in["labels"])}};
  }
};

Network network_of(std::function<Tensor(nn::Builder&, const Inputs&)> logits) {
  return {LogitsOf{std::move(logits)}, {{"input", f32_spec({2, 6})}, {"labels", i32_spec({2})}}};
}

TEST(TrainingStep, ListsFrozenWeights) {
  const Network m = model({8}, 0);
  const auto frozen = [&](const nn::Optimizer& optimizer) {
    return build_training(Ir(), m, optimizer, {}).frozen;
  };
  EXPECT_EQ(frozen(nn::Optimizer::sgd()), std::vector<std::string>{});
  const auto biases = nn::keys_like({"*.bias"});
  EXPECT_EQ(frozen(nn::Optimizer::grouped({{biases, nn::Optimizer::sgd()}})),
            (std::vector<std::string>{"fc.0.weight", "last.weight"}));
}

TEST(TrainingStep, RefusalsOfNetworks) {
  const auto train = [](const Network& m, const nn::Optimizer& optimizer) {
    return [=] { build_training(Ir(), m, optimizer, {}); };
  };
  const auto sgd = nn::Optimizer::sgd();
  expect_refused({
      {"a group without weights",
       train(model({8}, 0), nn::Optimizer::grouped({{nn::keys_like({"*.bais"}), sgd}})),
       "optimizer: parameter group 0, keys_like(*.bais), must match a variable, got none; "
       "variables are fc.0.weight, fc.0.bias, last.weight, last.bias"},
      {"a detached weight",
       train(network_of([](nn::Builder& b, const Inputs& in) {
               const Tensor x = ops::detach(b.inlined("a", nn::Linear(4), in["input"]));
               return b.inlined("b", nn::Linear(3), x);
             }),
             sgd),
       "none depends on 'a.bias'; to freeze a weight, leave it out of all parameter groups "
       "(nn::Optimizer::grouped) instead of using detach()"},
      {"a seed in evaluation",
       train(network_of([](nn::Builder& b, const Inputs& in) {
               return b.inlined("b", nn::Linear(3), ops::dropout(in["input"], in.seed()[0], 0.5));
             }),
             sgd),
       "network: there is one seed in training and none in evaluation, got an access to seed 0 of "
       "0; nn::Dropout takes it from the builder: dropout(b, x)"},
      {"two fields of one name",
       [] {
         Network(TwoShapes(), {{"x", f32_spec({2, 6})}, {"x", i32_spec({2})}});
       },
       "network: fields must have different names, got 'x' twice"},
  });
}

TEST(TrainingStep, Refusals) {
  const auto build = [](const Network& m, const Options& o) {
    return [=] { build_training(Ir(), m, nn::Optimizer::sgd(), o); };
  };
  expect_refused({
      {"no micro-batches", build(model({8}, 0), {.accumulate = 0}),
       "training: accumulate: must be an integer from 1 to 2147483647, got '0'"},
      {"a weight of two shapes",
       build({TwoShapes(), {{"input", f32_spec({2, 6})}, {"labels", i32_spec({2})}}}, {}),
       "network: variable 'weight' must be (6, 3) float32 in evaluation as in training, got (6, 4) "
       "float32"},
      {"blocks beside all blocks",
       build(model({8}, 0), {.recompute = {.all = true, .blocks = {"fc.0"}}}),
       "training: recompute must be all blocks or a list of blocks, got both"},
  });
}

}  // namespace
}  // namespace sluice::train
