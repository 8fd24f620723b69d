#pragma once
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sluice/base/hash.h"
#include "sluice/devices/cpu_device.h"
#include "sluice/ops/ops.h"
#include "sluice/session/session.h"
#include "sluice/train/step_arrays.h"
#include "sluice/train/training_step.h"

/// For tests: small networks and their training in every strategy.
namespace sluice::train {

inline constexpr int64_t kBatch = 4;
inline constexpr int64_t kWidth = 6;

inline std::vector<Field> fields() {
  return {{.name = "x", .spec = f32_spec({kBatch, kWidth}), .eval_spec = f32_spec({2, kWidth})},
          {.name = "labels", .spec = i32_spec({kBatch})},
          {.name = "scale", .spec = f32_spec({kBatch, 1}), .eval_spec = f32_spec({2, 1})}};
}

// A network whose build is a function.
struct Written : nn::Module {
  using Build = std::function<Results(nn::Builder&, const Inputs&)>;
  explicit Written(Build f) : f(std::move(f)) {}
  Results build(nn::Builder& b, const Inputs& in) const { return f(b, in); }
  Build f;
};

inline Network network(Written::Build build) { return {Written(std::move(build)), fields()}; }

inline Tensor linear(nn::Builder& b, const std::string& name, const Tensor& x,
                     int64_t out = kWidth) {
  return b.inlined(name, nn::Linear(out), x);
}

inline Tensor drop(nn::Builder& b, const std::string& name, const Tensor& x) {
  return b.inlined(name, nn::Dropout(0.25), x);
}

inline Results results(const Inputs& in, const Tensor& logits, std::vector<Loss> more = {}) {
  if (in.mode() == nn::RunMode::kEvaluate) return {.predictions = {{"logits", logits}}};
  more.insert(more.begin(), cross_entropy(logits, in["labels"]));
  return {.losses = std::move(more), .predictions = {{"logits", logits}}};
}

struct TrainedRun {
  std::string digest;
  int64_t planned = 0;
};

inline TrainedRun run(const Network& n, const Options& options, int replicas = 1, int threads = 1,
                      size_t more_devices = 0) {
  Ir ir(replicas);
  const Training t = build_training(ir, n, nn::Optimizer::adam(), options);
  Session session(ir, {.device = cpu_device({.threads = threads}),
                       .more_devices = std::vector(more_devices, cpu_device()),
                       .remote = "host"});
  EXPECT_EQ(session.planned_bytes(), session.measured_bytes());
  StepArrays arrays(t);
  Digest digest;
  for (int update = 0; update < 3; ++update) {
    float next = static_cast<float>(update);
    for (HostTensor& field : arrays.fields) {
      if (field.dtype() == f32)
        for (float& x : field.as<float>()) x = std::sin(next += 1);
      if (field.dtype() == i32)
        for (int32_t& x : field.as<int32_t>()) x = static_cast<int32_t>(next += 1) % 3;
    }
    arrays.seed(3, update);
    const HostTensors out = session.run(arrays.inputs(t), "train");
    for (const D2hStream& s : t.losses) digest.add(out[s].bytes());
    for (const D2hStream& s : t.predictions) digest.add(out[s].bytes());
  }
  session.each_variable([&](const std::string& path, const HostTensor& value) {
    digest.add(std::as_bytes(std::span(path)));
    digest.add(value.bytes());
  });
  std::vector<StreamInput> inputs;
  std::vector<HostTensor> batch;
  for (const H2dStream& s : t.eval_fields)
    batch.emplace_back(TensorSpec{entries_shape(s.spec.shape, 1, replicas), s.spec.dtype, {}});
  for (size_t i = 0; i < batch.size(); ++i) {
    float next = 0;
    if (batch[i].dtype() == f32)
      for (float& x : batch[i].as<float>()) x = std::cos(next += 1);
    inputs.push_back({t.eval_fields[i], batch[i]});
  }
  digest.add(session.run(inputs, "eval")[t.eval_predictions[0]].bytes());
  return {digest.hex(), session.planned_bytes()};
}

inline constexpr Location kRemote = Location::kRemote;

// Each location alone, and several.
inline std::vector<TensorLocations> locations() {
  return {
      {},
      {.optimizer = kRemote},
      {.weights = kRemote},
      {.activations = kRemote},
      {.accumulators = kRemote},
      {.weights = kRemote, .activations = kRemote},
      {.optimizer = kRemote, .weights = kRemote, .activations = kRemote, .accumulators = kRemote}};
}

// Each location runs in phases with every pair of values of replicas, accumulation and clipping. It
// also runs once in the resident strategy. The other options rotate, so that any two values of two
// dimensions meet.
inline void expect_one_digest(const Network& n) {
  const auto base = [](size_t combination) {
    return Options{.accumulate = combination & 2 ? 3 : 1,
                   .max_grad_norm = combination & 4 ? std::optional(0.05) : std::nullopt};
  };
  const auto replicas = [](size_t combination) { return combination & 1 ? 2 : 1; };
  std::array<std::string, 8> expected;
  for (size_t c = 0; c < expected.size(); ++c) expected[c] = run(n, base(c), replicas(c)).digest;
  const std::vector<TensorLocations> all = locations();
  size_t way = 0;
  const auto check = [&](size_t c, const Strategy& strategy, const TensorLocations& where) {
    Options options = base(c);
    options.strategy = strategy;
    options.locations = where;
    options.io_mode = std::array{IoMode::kCompute, IoMode::kIo, IoMode::kIoOverlapped}[way % 3];
    options.recompute.all = way % 2 == 0;
    options.locations.min_elements_sharded = way % 4 < 2 ? 8 : nn::kNeverShard;
    EXPECT_EQ(run(n, options, replicas(c), 1 + static_cast<int>((way + way / 3) % 3)).digest,
              expected[c])
        << "combination " << c << ", way " << way;
    ++way;
  };
  for (size_t l = 0; l < all.size(); ++l) {
    // An even number of the three values are the second ones, or an odd number.
    for (const size_t c : {0, 3, 5, 6}) check(l % 2 == 0 ? c : 7 - c, phased(), all[l]);
    check(l, resident(), all[l]);
  }
}

// A short form of expect_one_digest().
inline void expect_bits_of_resident(const Network& n) {
  for (const int64_t accumulate : {1, 2}) {
    const std::string expected = run(n, {.accumulate = accumulate}).digest;
    for (const Location activations : {Location::kDevice, Location::kRemote}) {
      const Options phased{.strategy = train::phased(),
                           .accumulate = accumulate,
                           .locations = {.activations = activations}};
      EXPECT_EQ(run(n, phased).digest, expected) << "accumulate " << accumulate;
    }
  }
}

}  // namespace sluice::train
