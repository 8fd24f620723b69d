#include "sluice/devices/cpu_device.h"
#include "sluice/runtime/strand.h"
#include "sluice/train/fit.h"

#include <gtest/gtest.h>

#include "sluice/base/test_refusals.h"
#include "sluice/nn/update/optimizers.h"
#include "sluice/ops/ops.h"

namespace sluice::train {
namespace {

// Entry "train" takes two i32 entries and updates a weight. The momentum is in remote memory.
struct Program {
  Program() {
    Graph& train = ir.entry_graph("train");
    const H2dStream x = ir.h2d_stream(i32_spec({3}), "x");
    w = train.variable(f32_spec({3}), Initializer::uniform(-1, 1).keyed({1, 2}), "w");
    const Tensor grad = ops::cast(train.host_load(x) * train.host_load(x), f32) * w;
    nn::Optimizer::sgd({.momentum = 0.9})
        .apply(train, nn::NamedTensors::from_dict({{"w", w}}),
               nn::NamedTensors::from_dict({{"w", grad}}), 0.5, {.remote_state = true});
    ir.entry_graph("test").host_store(ir.share_variable(w, ir.entry_graph("test")), "out");
  }
  Ir ir;
  Tensor w;
};

std::vector<HostTensor> values(const Session& session) {
  std::vector<HostTensor> all;
  session.each_variable(
      [&](const std::string&, HostTensor value) { all.push_back(std::move(value)); });
  return all;
}

TEST(Throughput, RunsOnOnesAndLeavesVariablesAsTheyWere) {
  const Program p;
  for (const std::string& remote : {std::string("host"), "file:" + testing::TempDir()}) {
    Session session(p.ir, {.device = cpu_device({.threads = 1}), .remote = remote});
    const auto inputs = session.expected_inputs("train");
    ASSERT_EQ(inputs.size(), 1u);
    EXPECT_EQ(inputs[0].second, (TensorSpec{{2, 3}, i32, {}}));
    HostTensor ones(inputs[0].second);
    for (int32_t& x : ones.as<int32_t>()) x = 1;
    session.run({{inputs[0].first, ones}}, "train");
    const auto before = values(session);
    ASSERT_EQ(before.size(), 2u);

    const int64_t bytes = session.counters().bytes;
    session.run({{inputs[0].first, ones}}, "train");
    const int64_t of_a_run = session.counters().bytes - bytes;
    EXPECT_FALSE(values(session)[0].same_bits(before[0]));
    session.restore({{"w", before[0]}, {"w.momentum", before[1]}});

    const Throughput t = evaluate_throughput(session, 8, 7, "train");
    EXPECT_EQ(session.counters().bytes - bytes, 8 * of_a_run);
    for (size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(values(session)[i].same_bits(before[i]));
    EXPECT_GT(t.mean_seconds, 0);
    EXPECT_DOUBLE_EQ(t.samples_per_second * t.mean_seconds, 8);
    EXPECT_GT(evaluate_throughput(session, 8, 1, "test").samples_per_second, 0);
  }
}

TEST(Throughput, Text) {
  EXPECT_EQ(to_string(Throughput{0.25, 32}), "Mean duration: 0.25 s Throughput:   32.0 samples/s ");
}

TEST(Throughput, Refusals) {
  const Program p;
  Session session(p.ir, {.device = cpu_device({.threads = 1})});
  const HostTensor three(f32_spec({3}));
  const HostTensor two(f32_spec({2}));
  expect_refused({
      {"no samples", [&] { evaluate_throughput(session, 0, 5, "train"); },
       "evaluate_throughput: samples_per_step must be at least 1, got 0"},
      {"no runs", [&] { evaluate_throughput(session, 1, 0, "train"); },
       "evaluate_throughput: runs must be at least 1, got 0"},
      {"no such program", [&] { evaluate_throughput(session, 1); }, "main"},
      {"inputs of no program", [&] { session.expected_inputs("walk"); }, "walk"},
      {"too few values",
       [&] {
         session.restore({{"w", three}});
       },
       "restore: must have a value for each of 2 variables, got 1 values"},
      {"another variable",
       [&] {
         session.restore({{"w", three}, {"v", three}});
       },
       "restore: variable 'w.momentum' is missing"},
      {"another shape",
       [&] {
         session.restore({{"w", two}, {"w.momentum", three}});
       },
       "restore: variable 'w': the array must be (3,) float32, got (2,) float32"},
  });
}

}  // namespace
}  // namespace sluice::train
