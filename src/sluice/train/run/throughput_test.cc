#include "sluice/devices/cpu_device.h"
#include "sluice/runtime/strand.h"
#include "sluice/train/fit.h"

#include <gtest/gtest.h>

#include "sluice/base/test_refusals.h"
#include "sluice/data/feed_queues.h"
#include "sluice/data/test_elements.h"
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

TEST(InfeedBenchmark, CountsElementsAndBytes) {
  data::InfeedQueue queue(
      data::from_tensors({data::test::filled({8, 4, 4}, 1), data::test::filled({8}, 2)}).repeat(),
      {.prefetch_depth = 2});
  for (int time = 0; time < 2; ++time) {
    const InfeedBenchmark result = infeed_benchmark(queue, {.epochs = 3, .elements = 100});
    EXPECT_EQ(result.requested, 300);
    EXPECT_EQ(result.produced, 300);
    ASSERT_EQ(result.epochs.size(), 3U);
    for (const data::BenchmarkEpoch& epoch : result.epochs) {
      EXPECT_EQ(epoch.elements_processed, 100);
      EXPECT_EQ(epoch.total_bytes_processed, 100 * (64 + 4));
      EXPECT_GT(epoch.bandwidth, 0);
    }
    EXPECT_EQ(result.feed.used, 300);
    EXPECT_GE(result.feed.moved, 300);
    EXPECT_LE(result.feed.moved, 300 + 2);
    EXPECT_EQ(result.feed.bytes, result.feed.moved * (64 + 4));
    EXPECT_EQ(result.feed.depth, 2);
  }
}

TEST(InfeedBenchmark, ReportsDataThatIsShort) {
  data::InfeedQueue queue(data::test::count_to(7));
  const data::BenchmarkResult result = infeed_benchmark(queue, {.epochs = 2, .elements = 5});
  EXPECT_EQ(result.requested, 10);
  EXPECT_EQ(result.produced, 7);
  EXPECT_EQ(result.epochs[1].elements_processed, 2);
}

TEST(InfeedBenchmark, Refusals) {
  data::InfeedQueue queue(data::test::count_to(7));
  data::InfeedQueue failing(data::test::count_to(7).map([](data::Element e) {
    if (e.arrays[0].as<float>()[0] == 4) fail(ErrorKind::kBadFile, "four");
    return e;
  }));
  expect_refused({
      {"epochs", [&] { infeed_benchmark(queue, {.epochs = 0}); },
       "infeed_benchmark: epochs must be in [1, 1000000], got 0"},
      {"copy", [&] { infeed_benchmark(queue, {.copy = false}); },
       "infeed_benchmark: copy must be true"},
      {"error", [&] { infeed_benchmark(failing, {.elements = 7}); }, "map computed element 4",
       ErrorKind::kBadFile},
  });
  EXPECT_EQ(infeed_benchmark(failing, {.elements = 4}).produced, 4);
  queue.open({.name = "x", .fields = queue.fields()});
  expect_refused({{"used", [&] { infeed_benchmark(queue); },
                   "one feed must use the queue at a time, got feed 'infeed_benchmark' and "
                   "feed 'x'"}});
}

}  // namespace
}  // namespace sluice::train
