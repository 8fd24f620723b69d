#include "mutants.h"

#include <gtest/gtest.h>

#include <set>

#include "dry_run.h"
#include "mutations/mutate.h"
#include "sluice/compiler/compile.h"
#include "sluice/cpu/device/cpu.h"
#include "sluice/devices/cpu_device.h"
#include "sluice/exe/test_plans.h"
#include "sluice/models/model.h"
#include "sluice/session/session.h"
#include "small_programs.h"
#include "training_programs.h"

namespace sluice::property {
namespace {

using exe::plans::plan;

std::vector<exe::Executable> hand_written() {
  return {plan(exe::plans::train_step()),
          plan(exe::plans::two_devices()),
          plan(exe::plans::overlapped_loop()),
          plan(exe::plans::replaced(exe::plans::carried_ring(), "1000001", "7")),
          plan(exe::plans::replaced(exe::plans::rotating_ring(), "1000000", "7")),
          plan(exe::plans::branch()),
          plan(exe::plans::by_reference()),
          plan(exe::plans::collectives())};
}

exe::Executable compiled_mlp(const models::Sizes& sizes, const nn::Optimizer& optimizer,
                             const std::vector<std::string>& disable = {}) {
  Ir ir;
  train::build_training(ir, models::find_model("mnist").build(sizes), optimizer, {});
  const DeviceChoice device = cpu_device({.threads = 2});
  return compile(ir, {.devices = {{device.target, -1, device.threads}}, .disable = disable})
      .executable;
}

exe::Executable compiled_for(size_t devices, const Ir& ir) {
  const DeviceChoice device = cpu_device({.threads = 2});
  const DeviceSpec one{device.target, -1, device.threads};
  return compile(ir, {.devices = std::vector<DeviceSpec>(devices, one)}).executable;
}

exe::Executable compiled_overlapped() {
  const DeviceChoice device = cpu_device({.threads = 2});
  return compile(overlapped_program(), {.devices = {{device.target, -1, device.threads}}})
      .executable;
}

exe::Executable compiled_collectives() {
  const DeviceChoice device = cpu_device({.threads = 2});
  return compile(data_parallel_program(4), {.devices = {{device.target, -1, 2}}}).executable;
}

exe::Executable compiled_training(const train::Options& step, int replicas, exe::Space remote) {
  Ir ir(replicas);
  small_training(ir, step, nn::Optimizer::adam());
  const DeviceChoice device = cpu_device({.threads = 2});
  return compile(ir, {.devices = {{device.target, -1, 2}}, .remote_space = remote}).executable;
}

exe::Executable compiled_skips(const train::Options& step) {
  Ir ir;
  build_training(ir, skip_network(), nn::Optimizer::adam(), step);
  const DeviceChoice device = cpu_device({.threads = 2});
  return compile(ir, {.devices = {{device.target, -1, 2}}}).executable;
}

TEST(Mutants, OfCompiledNetworksAreRefused) {
  MutantCount count;
  models::Sizes sizes = models::find_model("mnist").test_sizes;
  expect_mutants_refused(compiled_mlp(sizes, nn::Optimizer::sgd()), 1, 20, count);
  expect_mutants_refused(
      compiled_mlp(sizes, nn::Optimizer::sgd({.momentum = 0.9}), {"aliasing", "inline"}), 3, 20,
      count);
  sizes.dropout = 0.5;
  expect_mutants_refused(compiled_mlp(sizes, nn::Optimizer::adam()), 2, 20, count);
  print(count);
  EXPECT_GE(count.defects, 200);
  EXPECT_GE(count.defects_by_kind.size(), 10u);
}

TEST(Mutants, OfCompiledControlFlowAreRefused) {
  MutantCount count;
  expect_mutants_refused(compiled_for(2, control_flow_program()), 1, 20, count);
  print(count);
  for (const char* kind : {"message swapped", "rotation off by one", "trips off by one",
                           "carry dropped", "remote entry beyond", "sync dropped"}) {
    EXPECT_GT(count.defects_by_kind[kind], 0) << kind;
  }
}

TEST(Mutants, OfMessagesInLoopsAreRefused) {
  MutantCount count;
  expect_mutants_refused(compiled_for(2, two_device_loop_program()), 1, 40, count);
  expect_mutants_refused(compiled_for(3, three_device_program()), 1, 40, count);
  print(count);
  for (const std::string& kind : message_kinds()) EXPECT_GT(count.defects_by_kind[kind], 0) << kind;
}

TEST(Mutants, OfOverlappedTransfersAreRefused) {
  MutantCount count;
  expect_mutants_refused(compiled_overlapped(), 1, 40, count);
  print(count);
  for (const char* kind : {"wait dropped", "wait moved", "issue moved", "queue changed",
                           "double buffer made single", "remote entry beyond"}) {
    EXPECT_GT(count.defects_by_kind[kind], 0) << kind;
  }
}

TEST(Mutants, OfCompiledCollectivesAreRefused) {
  MutantCount count;
  expect_mutants_refused(compiled_collectives(), 1, 20, count);
  print(count);
  for (const char* kind : {"collective dropped", "collectives swapped", "collective at one replica",
                           "collective of another group", "trips off by one"}) {
    EXPECT_GT(count.defects_by_kind[kind], 0) << kind;
  }
}

// Real training steps: phases with overlapped transfers, accumulation, shards of replicas, every
// tier.
TEST(Mutants, OfTrainingStepsAreRefused) {
  using train::Strategy;
  MutantCount count;
  expect_mutants_refused(compiled_training({.strategy = train::phased(),
                                            .accumulate = 3,
                                            .locations = all_remote(),
                                            .io_mode = IoMode::kIoOverlapped},
                                           1, exe::Space::kFile),
                         1, 12, count);
  expect_mutants_refused(compiled_training({.strategy = train::phased(),
                                            .accumulate = 2,
                                            .locations = all_remote(16),
                                            .io_mode = IoMode::kIo,
                                            .recompute = train::Recompute::every_block()},
                                           2, exe::Space::kHost),
                         2, 12, count);
  expect_mutants_refused(compiled_training({.strategy = train::phased(),
                                            .locations = {.optimizer = train::Location::kRemote,
                                                          .activations = train::Location::kRemote},
                                            .io_mode = IoMode::kCompute},
                                           2, exe::Space::kHost),
                         3, 12, count);
  expect_mutants_refused(compiled_training({.accumulate = 2,
                                            .locations = {.optimizer = train::Location::kRemote,
                                                          .min_elements_sharded = 0}},
                                           4, exe::Space::kHost),
                         4, 12, count);
  print(count);
  EXPECT_GE(count.defects, 1000);
  // These programs cannot have some kinds of defect: they use one device and one group, no kernel
  // has several tasks, and a wait that moves to the next step is still in time. "wait past the
  // border" covers waits for them.
  std::set<std::string> elsewhere{"collective of another group",
                                  "exchange dropped",
                                  "exchange repeated",
                                  "sync dropped",
                                  "tasks overlapped",
                                  "wait moved"};
  for (const std::string& kind : message_kinds()) elsewhere.insert(kind);
  for (const std::string& kind : mutation_kinds()) {
    if (elsewhere.contains(kind)) continue;
    EXPECT_GT(count.defects_by_kind[kind], 0) << kind;
  }
}

// Skips, a tied weight, rows and two losses: sums in another order, updates before the last
// gradient, rows of other blocks, and stored values that are overwritten.
TEST(Mutants, OfSkipsAndTiedWeightsAreRefused) {
  using train::Location;
  using train::Strategy;
  train::TensorLocations everything = all_remote();
  everything.accumulators = Location::kRemote;
  const std::vector<train::Options> steps{
      {.accumulate = 2},
      {.accumulate = 2, .locations = everything, .io_mode = IoMode::kIoOverlapped},
      {.strategy = train::phased(), .accumulate = 3, .locations = all_remote()},
      {.strategy = train::phased(),
       .accumulate = 2,
       .locations = everything,
       .io_mode = IoMode::kIoOverlapped},
      {.strategy = train::phased(), .accumulate = 2, .max_grad_norm = 0.5}};
  const std::vector<std::string> kinds{"accumulations exchanged", "updated early",
                                       "row of another block",    "stored value overwritten",
                                       "row off by one",          "load dropped",
                                       "load before the store",   "another buffer"};
  MutantCount count;
  for (size_t i = 0; i < steps.size(); ++i) {
    SCOPED_TRACE(i);
    expect_mutants_refused(compiled_skips(steps[i]), i, 24, count, kinds);
  }
  print(count);
  EXPECT_GE(count.defects, 200);
  for (const std::string& kind : kinds) EXPECT_GT(count.defects_by_kind[kind], 0) << kind;
}

TEST(Mutants, OfBarriersAreRefused) {
  MutantCount count;
  const models::Sizes sizes{.micro_batch = 8, .eval_batch = 16, .layers = 3, .width = 128};
  for (const nn::Optimizer& optimizer : {nn::Optimizer::sgd(), nn::Optimizer::adam()})
    expect_mutants_refused(compiled_mlp(sizes, optimizer), 1, 100, count, {"sync dropped"});
  print(count);
  EXPECT_GE(count.defects, 10);
}

TEST(Mutants, OfHandWrittenPlansAreRefused) {
  MutantCount count;
  for (const exe::Executable& e : hand_written()) expect_mutants_refused(e, 1, 40, count);
  // The plans above lack two loads in flight, two variables in one buffer, two collectives in a row
  // and two waiting messages. These programs have them.
  expect_mutants_refused(compiled_for(2, two_device_loop_program()), 1, 40, count, message_kinds());
  expect_mutants_refused(compiled_for(3, three_device_program()), 1, 40, count,
                         {"channel one slot short", "exchange dropped", "exchange repeated"});
  expect_mutants_refused(compiled_overlapped(), 1, 40, count, {"double buffer made single"});
  expect_mutants_refused(compiled_training({.strategy = train::phased(),
                                            .accumulate = 2,
                                            .locations = all_remote(),
                                            .io_mode = IoMode::kIoOverlapped},
                                           2, exe::Space::kHost),
                         1, 4, count,
                         {"homes exchanged", "row of another replica", "collectives exchanged",
                          "load before the store"});
  expect_mutants_refused(
      compiled_skips({.strategy = train::phased(), .accumulate = 2, .locations = all_remote()}), 1,
      8, count, {"updated early", "row of another block", "stored value overwritten"});
  train::TensorLocations everything = all_remote();
  everything.accumulators = train::Location::kRemote;
  for (const auto& strategy :
       {train::Strategy(train::resident()), train::Strategy(train::phased())}) {
    expect_mutants_refused(compiled_skips({.strategy = strategy,
                                           .accumulate = 2,
                                           .locations = everything,
                                           .io_mode = IoMode::kIoOverlapped,
                                           .max_grad_norm = 0.5}),
                           1, 40, count, {"accumulations exchanged"});
    expect_mutants_refused(
        compiled_skips({.strategy = strategy, .accumulate = 2, .max_grad_norm = 0.5}), 1, 40, count,
        {"accumulations exchanged"});
  }
  print(count);
  for (const std::string& kind : mutation_kinds())
    EXPECT_GT(count.defects_by_kind[kind], 0) << kind;
  EXPECT_GE(count.defects, 200);
}

TEST(DryRun, ShowsWhatDamageDoes) {
  const exe::Executable right = plan(exe::plans::train_step());
  EXPECT_EQ(difference(right, right), "");
  const auto after = [&](std::string_view from, std::string_view to) {
    return difference(right, plan(exe::plans::replaced(exe::plans::train_step(), from, to)));
  };
  EXPECT_EQ(after("2 sync kernel", "2 kernel"), "stream 1 entry 0 differs");
  EXPECT_EQ(after("write %6 at arena0+0", "write %6 at frame+0"), "variable fc.weight differs");
  EXPECT_EQ(after("bytes 192 stride 0", "bytes 128 stride 0"), "reaches beyond arena 'frames'");
  EXPECT_EQ(after("3 kernel", "3 sync kernel"), "");
}

}  // namespace
}  // namespace sluice::property
