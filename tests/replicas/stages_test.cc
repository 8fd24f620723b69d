// Stages of replicas in several processes: the bits and bytes of one process.
#include <gmock/gmock.h>

#include <cmath>

#include "../support/thread_sanitizer.h"
#include "replicas_util.h"
#include "sluice/base/hash.h"
#include "sluice/exe/process_map.h"
#include "sluice/train/step_arrays.h"

namespace sluice::test {
namespace {

using train::Location;
using train::PipelinedExecution;
using train::Schedule;
using train::Stages;

constexpr int64_t kStageBatch = 4;
constexpr int64_t kWidth = 6;
constexpr int kBlocks = 4;

/// Four blocks. The last one multiplies by the first one's weight and reads the first one's result.
struct Blocks : nn::Module {
  train::Results build(nn::Builder& b, const train::Inputs& in) const {
    const Tensor tied = b.add_variable_input("tied", nn::normal(0, 0.4), {kWidth, kWidth});
    Tensor x = in["x"];
    Tensor first;
    for (int k = 0; k < kBlocks; ++k) {
      const nn::Block block(b, fmt::format("B{}", k));
      const bool ends = k == 0 || k + 1 == kBlocks;
      x = ends ? ops::matmul(x, tied) : b.inlined(fmt::format("fc{}", k), nn::Linear(kWidth), x);
      if (k == 1) x = b.inlined("drop", nn::Dropout(0.25), x);
      x = k + 1 == kBlocks ? x + first : ops::tanh(x);
      if (k == 0) first = x;
      if (k + 1 < kBlocks) continue;
      if (in.mode() == nn::RunMode::kEvaluate) return {.predictions = {{"logits", x}}};
      return {.losses = {train::cross_entropy(x, in["labels"])}, .predictions = {{"logits", x}}};
    }
    return {};
  }
};

struct Case {
  int replicas = 1;
  int devices = 2;
  Schedule schedule = Schedule::kGrouped;
  train::TensorLocations locations = {};
};

/// The blocks cut into `devices` stages.
Stages stages(int devices) {
  std::vector<train::Stage> all;
  for (int d = 0; d < devices; ++d) {
    std::vector<std::string> blocks;
    for (int k = d * kBlocks / devices; k < (d + 1) * kBlocks / devices; ++k)
      blocks.push_back(fmt::format("B{}", k));
    all.push_back(train::Stage(blocks));
  }
  return all;
}

/// Trains, evaluates, and returns a digest of all outputs and variables.
std::string digest_of(const Case& c, const std::shared_ptr<runtime::ProcessGroup>& group,
                      std::vector<int> map = {}, int threads = 1) {
  Ir ir(c.replicas);
  const train::Network network{
      Blocks(),
      {{.name = "x", .spec = f32_spec({kStageBatch, kWidth}), .eval_spec = f32_spec({2, kWidth})},
       {.name = "labels", .spec = i32_spec({kStageBatch})}}};
  const train::Training t =
      build_training(ir, network, nn::Optimizer::adam(),
                     {.strategy = PipelinedExecution{stages(c.devices), c.schedule},
                      .accumulate = 5,
                      .locations = c.locations});
  const auto device = cpu_device({.threads = threads});
  Session session(ir, {.device = device,
                       .more_devices = std::vector(static_cast<size_t>(c.devices) - 1, device),
                       .group = group,
                       .map = std::move(map)});
  for (int d = 0; d < c.devices; ++d)
    EXPECT_EQ(session.planned_bytes(d), session.measured_bytes(d)) << "device " << d;
  train::StepArrays arrays(t);
  Digest digest;
  for (int update = 0; update < 3; ++update) {
    float next = static_cast<float>(update);
    for (float& x : arrays.fields[0].as<float>()) x = std::sin(next += 1);
    int32_t label = update;
    for (int32_t& x : arrays.fields[1].as<int32_t>()) x = label++ % kWidth;
    arrays.seed(3, update);
    const HostTensors out = session.run(arrays.inputs(t), "train");
    for (const D2hStream& s : t.losses) digest.add(out[s].bytes());
    for (const D2hStream& s : t.predictions) digest.add(out[s].bytes());
  }
  session.each_variable([&](const std::string& path, const HostTensor& value) {
    digest.add(std::as_bytes(std::span(path)));
    digest.add(value.bytes());
  });
  EXPECT_FALSE(session.find_replica_difference().has_value());
  const H2dStream& field = t.eval_fields[0];
  HostTensor batch({entries_shape(field.spec.shape, 1, c.replicas), field.spec.dtype, {}});
  for (float& x : batch.as<float>()) x = 0.25F;
  digest.add(session.run({{field, batch}}, "eval")[t.eval_predictions[0]].bytes());
  return digest.hex();
}

std::vector<Case> cases() {
  const auto remote = Location::kRemote;
  std::vector<Case> all;
  for (const int replicas : {1, 2}) {
    for (const int devices : {2, 4}) {
      for (const Schedule s : {Schedule::kGrouped, Schedule::kInterleaved, Schedule::kSequential})
        all.push_back({replicas, devices, s});
      all.push_back({replicas, devices, Schedule::kGrouped, {.weights = remote}});
      all.push_back({replicas,
                     devices,
                     Schedule::kInterleaved,
                     {.optimizer = remote, .activations = remote, .accumulators = remote}});
    }
    all.push_back({replicas, 2, Schedule::kGrouped, {.min_elements_sharded = 0}});
  }
  return all;
}

// A group runs a case with two threads, with one, or mapped by devices. Each schedule and location
// has each of these ways.
TEST(Stages, OfSeveralProcessesHaveTheBitsOfOne) {
  int number = 0;
  for (const Case& c : cases()) {
    SCOPED_TRACE(fmt::format("case {}", ++number));
    const std::string want = digest_of(c, nullptr);
    for_each_group(c.replicas * c.devices, [&](const auto& group) {
      const int way = (number + group->size() / 2) % 3;
      if (kThreadSanitizer && way != 0) return;  // The compiler dominates the time.
      std::vector<int> map;
      if (way == 2) map = exe::ProcessMap::devices_first(c.replicas, c.devices, group->size());
      EXPECT_EQ(digest_of(c, group, map, way == 0 ? 2 : 1), want);
    });
  }
}

// Processes that run other devices, not in their order.
TEST(Stages, MayBeMappedFreely) {
  const Case c{.replicas = 2, .devices = 4};
  const std::string want = digest_of(c, nullptr);
  for (const std::vector<int>& map :
       {std::vector{1, 0, 1, 0, 1, 0, 1, 0}, std::vector{0, 1, 1, 0, 0, 1, 1, 0},
        std::vector{0, 1, 1, 1, 0, 1, 1, 1}}) {
    for_each_group(2, [&](const auto& group) { EXPECT_EQ(digest_of(c, group, map), want); });
  }
}

}  // namespace
}  // namespace sluice::test
