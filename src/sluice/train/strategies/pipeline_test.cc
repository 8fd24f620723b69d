// Steps in stages on several devices have the bits of the resident step.
#include "sluice/train/emitter.h"

#include <gtest/gtest.h>

#include "sluice/base/test_refusals.h"
#include "sluice/exe/executable.h"
#include "sluice/train/cut/test_networks.h"
#include "sluice/train/order/order.h"
#include "sluice/train/pipeline/schedule.h"

namespace sluice::train {
namespace {

// Blocks A, B, C and D. C reads A too, and B and D share a weight.
Network chain() {
  return network([](nn::Builder& b, const Inputs& in) {
    Tensor a, x;
    Tensor tied;
    {
      const nn::Block block(b, "A");
      a = ops::gelu(linear(b, "first", in["x"]));
    }
    {
      const nn::Block block(b, "B");
      tied = b.add_variable_input("tied", nn::normal(0, 0.5), {kWidth, kWidth});
      x = drop(b, "drop", ops::relu(ops::matmul(a, tied)));
    }
    {
      const nn::Block block(b, "C");
      x = linear(b, "third", x + a);
    }
    const nn::Block block(b, "D");
    return results(in, linear(b, "last", ops::gelu(ops::matmul(x, tied)) * in["scale"], 3));
  });
}

std::vector<Stage> stages_on(const std::vector<int>& devices) {
  std::vector<Stage> stages;
  const char* const names[] = {"A", "B", "C", "D"};
  for (size_t s = 0; s < devices.size(); ++s) {
    std::vector<std::string> blocks{names[s]};
    if (s + 1 == devices.size()) blocks.assign(names + s, names + 4);
    stages.push_back(Stage(blocks).device(devices[s]));
  }
  return stages;
}

constexpr Schedule kSchedules[] = {Schedule::kGrouped, Schedule::kInterleaved,
                                   Schedule::kSequential, Schedule::kAuto};

// Up to two micro-batches more than a schedule has in flight, so that the loop of a step repeats.
TEST(Pipeline, HasTheBitsOfTheResidentStepForAnyNumberOfMicroBatches) {
  const Network n = chain();
  const std::pair<Schedule, int64_t> in_flight[] = {{Schedule::kGrouped, 7},
                                                    {Schedule::kInterleaved, 4},
                                                    {Schedule::kSequential, 1},
                                                    {Schedule::kAuto, 7}};
  for (int64_t accumulate = 1; accumulate <= 9; ++accumulate) {
    const std::string expected = run(n, {.accumulate = accumulate}).digest;
    for (const auto& [schedule, max] : in_flight) {
      if (accumulate > max + 2) continue;
      const Options options{.strategy = PipelinedExecution{{}, schedule}, .accumulate = accumulate};
      EXPECT_EQ(run(n, options, 1, 1, 3).digest, expected)
          << to_string(schedule) << ", " << accumulate << " micro-batches";
    }
    if (accumulate > 3) continue;
    EXPECT_EQ(run(n, {.strategy = sharded(), .accumulate = accumulate}, 1, 2, 3).digest, expected);
  }
}

// Each number of stages has every schedule.
TEST(Pipeline, MayRevisitDevices) {
  const Network n = chain();
  size_t first = 0;
  const std::string expected = run(n, {.accumulate = 5}).digest;
  for (const std::vector<int>& devices : std::vector<std::vector<int>>{{0, 1},
                                                                       {0, 0},
                                                                       {1, 0},
                                                                       {0, 1, 0},
                                                                       {2, 0, 1},
                                                                       {0, 1, 0, 1},
                                                                       {0, 0, 0, 0},
                                                                       {3, 2, 1, 0}}) {
    for (size_t s = first++ % 2; s < std::size(kSchedules); s += 2) {
      const Schedule schedule = kSchedules[s];
      const Options options{.strategy = PipelinedExecution{stages_on(devices), schedule},
                            .accumulate = 5};
      EXPECT_EQ(run(n, options, 1, 2, 3).digest, expected)
          << to_string(schedule) << ", " << devices.size() << " stages";
    }
  }
}

TEST(Pipeline, HasTheBitsOfTheResidentStepWithEachLocation) {
  const Network n = chain();
  int way = 0;
  for (const int replicas : {1, 2}) {
    for (const std::optional<double> clip : {std::optional<double>(), std::optional(0.05)}) {
      Options options{.accumulate = 6, .max_grad_norm = clip};
      const std::string expected = run(n, options, replicas).digest;
      for (const TensorLocations& where : locations()) {
        options.strategy = PipelinedExecution{{}, kSchedules[way % 4]};
        options.locations = where;
        options.io_mode = std::array{IoMode::kCompute, IoMode::kIo,
                                     IoMode::kIoOverlapped}[static_cast<size_t>(way) % 3];
        options.recompute.all = way % 2 == 0;
        options.locations.min_elements_sharded = way % 5 < 2 ? 8 : nn::kNeverShard;
        EXPECT_EQ(run(n, options, replicas, 1 + way % 3, 3).digest, expected)
            << replicas << " replicas, way " << way;
        ++way;
      }
    }
  }
}

// Phases in groups, in stages and not. Values between blocks are kept in remote memory.
TEST(Pipeline, GroupsHaveTheBitsOfTheResidentStep) {
  const Network n = chain();
  int way = 0;
  for (const std::optional<double> clip : {std::optional<double>(), std::optional(0.05)}) {
    for (const int64_t updates : {1, 2}) {
      Options options{.accumulate = 6, .device_iterations = updates, .max_grad_norm = clip};
      const std::string expected = run(n, options).digest;
      for (const int64_t group : {0, 1, 2, 3, 6}) {
        for (const std::vector<int>& devices :
             std::vector<std::vector<int>>{{}, {0, 1}, {1, 0, 1}, {0, 1, 2, 3}}) {
          if (devices.empty() && group == 0) continue;  // All blocks and all micro-batches.
          PhasedExecution phases{.group = group};
          if (!devices.empty()) phases.stages = stages_on(devices);
          options.strategy = phases;
          options.locations = locations()[static_cast<size_t>(way) % locations().size()];
          options.locations.activations = Location::kRemote;
          options.io_mode = std::array{IoMode::kCompute, IoMode::kIo,
                                       IoMode::kIoOverlapped}[static_cast<size_t>(way) % 3];
          options.recompute.all = way % 2 == 0;
          EXPECT_EQ(run(n, options, 1, 1 + way % 3, 3).digest, expected)
              << "groups of " << group << ", " << devices.size() << " stages, way " << way;
          ++way;
        }
      }
    }
  }
}

exe::Executable plan(const Options& options, size_t devices) {
  Ir ir;
  build_training(ir, chain(), nn::Optimizer::sgd(), options);
  const Session session(ir, {.device = cpu_device({.threads = 1}),
                             .more_devices = std::vector(devices - 1, cpu_device())});
  return session.executable();
}

size_t count_steps(const exe::Executable& e) {
  size_t steps = 0;
  for (const exe::Function& f : e.functions) steps += f.steps.size();
  return steps;
}

TEST(Pipeline, DoesNotGrowWithTheMicroBatches) {
  for (const Schedule schedule : kSchedules) {
    const auto steps = [&](int64_t accumulate) {
      return count_steps(
          plan({.strategy = PipelinedExecution{{}, schedule}, .accumulate = accumulate}, 4));
    };
    EXPECT_EQ(steps(10), steps(1000)) << to_string(schedule);
  }
}

TEST(Pipeline, IsTheStrategyOfBlocksThatNameDevices) {
  const Network n = network([](nn::Builder& b, const Inputs& in) {
    Tensor x = in["x"];
    for (const int device : {0, 1}) {
      const nn::Block block(b, device == 0 ? "A" : "B", {.device = device});
      x = linear(b, device == 0 ? "a" : "b", x, device == 0 ? kWidth : 3);
      if (device == 1) return results(in, x * in["scale"]);
    }
    return Results();
  });
  Ir ir;
  EXPECT_EQ(build_training(ir, n, nn::Optimizer::sgd(), {.accumulate = 3}).devices, 2);
  const std::string expected = run(n, {.strategy = resident(), .accumulate = 3}, 1, 1, 1).digest;
  EXPECT_EQ(run(n, {.accumulate = 3}, 1, 1, 1).digest, expected);
  EXPECT_EQ(run(n, {.strategy = pipelined(), .accumulate = 3}, 1, 1, 1).digest, expected);
  expect_refused({{"another device than that of the block",
                   [&] { run(n, {.strategy = pipelined(Stage("A").device(1), "B")}, 1, 1, 1); },
                   "stage 0: must run on one device, got 1, but block 'A' names 0"}});
}

// The tier does not grow with the micro-batches of a step.
TEST(Pipeline, RemoteActivationsHaveAnEntryForEachMicroBatchInFlight) {
  const auto entries = [](Schedule schedule, int64_t accumulate) {
    Ir ir;
    build_training(ir, chain(), nn::Optimizer::sgd(),
                   {.strategy = PipelinedExecution{{}, schedule},
                    .accumulate = accumulate,
                    .locations = {.activations = Location::kRemote}});
    int64_t max = 0;
    for (int b = 1; b <= ir.remote_buffer_count(); ++b)
      max = std::max(max, ir.remote_buffer_info(b).entries);
    return max;
  };
  for (const int64_t accumulate : {20, 1000}) {
    EXPECT_EQ(entries(Schedule::kGrouped, accumulate), 7);
    EXPECT_EQ(entries(Schedule::kInterleaved, accumulate), 4);
    EXPECT_EQ(entries(Schedule::kSequential, accumulate), 1);
  }
  EXPECT_EQ(entries(Schedule::kGrouped, 3), 3);
}

TEST(Pipeline, RefusesWrongGroups) {
  const auto with = [](PhasedExecution phases, Location activations) {
    return [phases = std::move(phases), activations] {
      Ir ir;
      build_training(
          ir, chain(), nn::Optimizer::sgd(),
          {.strategy = phases, .accumulate = 6, .locations = {.activations = activations}});
    };
  };
  expect_refused({
      {"a group that does not divide", with({.group = 4}, Location::kRemote),
       "must divide the 6 micro-batches of an update, got 4"},
      {"a negative group", with({.group = -1}, Location::kRemote),
       "group: must be all or an integer from 1 to 9223372036854775807, got '-1'"},
      {"values that stay on the device", with({.group = 2}, Location::kDevice),
       "locations.activations must be remote"},
  });
}

TEST(Pipeline, RefusesWrongStages) {
  const auto with = [](std::vector<Stage> stages) {
    return [stages = std::move(stages)] {
      Ir ir;
      build_training(ir, chain(), nn::Optimizer::sgd(), {.strategy = PipelinedExecution{stages}});
    };
  };
  const auto blocks = [](auto... names) { return Stage(names...); };
  expect_refused({
      {"one stage", with({blocks("A", "B", "C", "D")}), "at least two stages, got 1"},
      {"one step", with({blocks("A", "B"), blocks("C", "D").concurrent()}),
       "concurrent stages must not read values of each other, but block 'C' reads"},
      {"a block twice", with({blocks("A", "B"), blocks("B", "C", "D")}),
       "associated with more than one stage: 0 and 1"},
      {"an unknown block", with({blocks("A", "B", "E"), blocks("C", "D")}),
       "Unknown Block 'E': the blocks of the model are A, B, C, D"},
      {"a block in no stage", with({blocks("A", "B"), blocks("D")}),
       "block 'C' must be in a stage"},
      {"another order", with({blocks("C", "D"), blocks("A", "B")}), "in the order A, B, C, D"},
      {"no block", with({Stage(std::vector<std::string>()), blocks("A", "B", "C", "D")}),
       "stage 0: must have a block"},
      {"some devices", with({blocks("A", "B").device(0), blocks("C", "D")}),
       "stage 0 has one and stage 1 has none"},
      {"a negative device", with({blocks("A", "B").device(-2), blocks("C", "D").device(0)}),
       "must be from 0 to 4095, got -2"},
      {"a device out of range", with({blocks("A", "B").device(4096), blocks("C", "D").device(0)}),
       "stage 0: its device must be from 0 to 4095, got 4096"},
      {"a concurrent first stage", with({blocks("A", "B").concurrent(), blocks("C", "D")}),
       "stage 0: must not be concurrent"},
      {"a device that the session lacks",
       [] { run(chain(), {.strategy = pipelined(), .accumulate = 2}, 1, 1, 1); }, "device"},
  });
}

// Block B reads a value of A after the gradient of A has read it from remote memory.
TEST(GivenOrder, MayRunAGradientBeforeALaterBlock) {
  const Network n = network([](nn::Builder& b, const Inputs& in) {
    Tensor a, early, x;
    {
      const nn::Block block(b, "A");
      a = ops::gelu(linear(b, "first", in["x"]));
      early = ops::mean(a * a);
    }
    {
      const nn::Block block(b, "B");
      x = ops::gelu(linear(b, "second", ops::detach(a)));
    }
    const nn::Block block(b, "C");
    return results(in, linear(b, "last", x, 3), {{"early", early}});
  });
  std::string text;
  for (const int m : {0, 1}) {
    for (const char* task :
         {"forward stage 0, block 0", "backward stage 0, block 0", "forward stage 1, block 1",
          "forward stage 1, block 2", "backward stage 1, block 2", "backward stage 1, block 1"})
      text += fmt::format("{}, micro-batch {}\n", task, m);
  }
  const OrderedExecution ordered{
      std::vector<Stage>{Stage("A").device(0), Stage("B", "C").device(0)},
      [text](const StepDependences&) { return parse_order(text + "update\n"); }};
  const TensorLocations locations{.activations = Location::kRemote};
  EXPECT_EQ(run(n, {.strategy = ordered, .accumulate = 2, .locations = locations}).digest,
            run(n, {.accumulate = 2}).digest);
}

}  // namespace
}  // namespace sluice::train
