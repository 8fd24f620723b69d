// Damages compiled and hand-written plans: the checker refuses each defect by a rule of its kind.
#include <gtest/gtest.h>

#include <set>

#include "damage.h"
#include "dry_run.h"
#include "mutations/mutate.h"
#include "random_graph_run.h"
#include "sluice/exe/test_plans.h"
#include "sluice/models/model.h"
#include "small_programs.h"
#include "training_programs.h"

namespace sluice::property {
namespace {

using exe::plans::plan;
using train::Location;

/// A plan and the damages to it.
struct DamagedPlan {
  exe::Executable right;
  uint64_t seed = 1;
  int per_kind = 40;
  std::vector<std::string> kinds = {};  ///< Empty for all.
};

Tally judge(const DamagedPlan& row) {
  return judge({.right = row.right, .dry_runs = dry_runs(row.right)},
               mutations(row.right, row.seed, row.per_kind, row.kinds));
}

/// Judges the damages to all plans and prints the counts.
Tally judge(const std::vector<DamagedPlan>& rows) {
  Tally tally;
  for (size_t i = 0; i < rows.size(); ++i) {
    SCOPED_TRACE(i);
    tally += judge(rows[i]);
  }
  print(tally);
  return tally;
}

std::vector<DamagedPlan> hand_written() {
  using namespace exe::plans;  // NOLINT: the names of plans
  return {{plan(train_step())},
          {plan(two_devices())},
          {plan(overlapped_loop())},
          {plan(replaced(carried_ring(), "1000001", "7"))},
          {plan(replaced(rotating_ring(), "1000000", "7"))},
          {plan(branch())},
          {plan(by_reference())},
          {plan(collectives())}};
}

exe::Executable compiled_mlp(const models::Sizes& sizes, const nn::Optimizer& optimizer,
                             const std::vector<std::string>& disable = {}) {
  Ir ir;
  train::build_training(ir, models::find_model("mnist").build(sizes), optimizer, {});
  return compiled(ir, 1, disable).executable;
}

exe::Executable compiled_training(const train::Options& step, int replicas,
                                  exe::Space remote = exe::Space::kHost) {
  Ir ir(replicas);
  small_training(ir, step, nn::Optimizer::adam());
  return compiled(ir, 1, {}, remote).executable;
}

exe::Executable compiled_skips(const train::Options& step) {
  Ir ir;
  build_training(ir, skip_network(), nn::Optimizer::adam(), step);
  return compiled(ir, 1).executable;
}

const std::vector<std::string> kSkipKinds{
    "accumulations exchanged", "updated early", "row of another block",  "stored value overwritten",
    "row off by one",          "load dropped",  "load before the store", "another buffer"};

TEST(Mutants, OfCompiledNetworksAreRefused) {
  models::Sizes sizes = models::find_model("mnist").test_sizes;
  std::vector<DamagedPlan> rows{
      {compiled_mlp(sizes, nn::Optimizer::sgd()), 1, 20},
      {compiled_mlp(sizes, nn::Optimizer::sgd({.momentum = 0.9}), {"aliasing", "inline"}), 3, 20}};
  sizes.dropout = 0.5;
  rows.push_back({compiled_mlp(sizes, nn::Optimizer::adam()), 2, 20});
  const Tally tally = judge(rows);
  EXPECT_GE(tally.count(Verdict::kDefect), 200);
  EXPECT_GE(tally.kinds_of_defects(), 10);
}

/// Damages of a plan with control flow. The value program must show damage to values, whatever the
/// checker reports, and must not show damage to memory.
Tally judge_control_flow() {
  const std::set<std::string> of_values = {
      "step dropped",     "transfer dropped", "stream entries swapped", "message swapped",
      "trips off by one", "carry dropped",    "remote entry beyond",    "final damaged"};
  const std::set<std::string> of_memory = {
      "buffer moved", "released early",      "arena shrunk",     "argument rebound",
      "sync dropped", "rotation off by one", "workspace shared", "layout renamed"};
  const RandomProgram program{.ir = control_flow_program(), .runs = {"main", "main", "main"}};
  const Compiled plan = compiled(program.ir, 2);
  std::vector<Damage> damages = mutations(plan.executable, 1, 20);
  std::set<std::string> made;
  for (Damage& d : damages) {
    made.insert(d.kind);
    if (of_values.contains(d.kind)) d.differs = true;
    if (of_memory.contains(d.kind)) d.differs = false;
  }
  for (const auto* kinds : {&of_values, &of_memory}) {
    for (const std::string& kind : *kinds) EXPECT_TRUE(made.contains(kind)) << kind;
  }
  return judge({.right = plan.executable,
                .dry_runs = dry_runs(plan.executable),
                .runs = value_runs(program, plan)},
               damages);
}

TEST(Mutants, OfSmallProgramsAreRefused) {
  Tally tally = judge(hand_written());
  EXPECT_GE(tally.count(Verdict::kDefect), 200);
  const auto expect = [&](const Tally& added, const std::vector<std::string>& kinds) {
    print(added);
    expect_defects(added, kinds);
    tally += added;
  };
  expect(judge_control_flow(), {"message swapped", "rotation off by one", "trips off by one",
                                "carry dropped", "remote entry beyond", "sync dropped"});
  expect(judge({{compiled(two_device_loop_program(), 2).executable},
                {compiled(three_device_program(), 3).executable}}),
         message_kinds());
  expect(judge(DamagedPlan{compiled(overlapped_program(), 1).executable}),
         {"wait dropped", "wait moved", "issue moved", "queue changed", "double buffer made single",
          "remote entry beyond"});
  expect(judge(DamagedPlan{compiled(data_parallel_program(4), 1).executable, 1, 20}),
         {"collective dropped", "collectives swapped", "collective at one replica",
          "collective of another group", "trips off by one"});
  const std::vector<std::string> rows{"locations exchanged", "row of another replica",
                                      "collectives exchanged", "load before the store"};
  expect(judge(DamagedPlan{compiled_training({.strategy = train::phased(),
                                              .accumulate = 2,
                                              .locations = all_remote(),
                                              .io_mode = IoMode::kIoOverlapped},
                                             2),
                           1, 4, rows}),
         rows);
  expect_defects(tally, kinds_without(mutation_kinds(), kSkipKinds));
}

// Real training steps: phases with overlapped transfers, accumulation, shards of replicas, every
// tier.
TEST(Mutants, OfTrainingStepsAreRefused) {
  const Tally tally =
      judge({{compiled_training({.strategy = train::phased(),
                                 .accumulate = 3,
                                 .locations = all_remote(),
                                 .io_mode = IoMode::kIoOverlapped},
                                1, exe::Space::kFile),
              1, 12},
             {compiled_training({.strategy = train::phased(),
                                 .accumulate = 2,
                                 .locations = all_remote(16),
                                 .io_mode = IoMode::kIo,
                                 .recompute = train::Recompute::every_block()},
                                2),
              2, 12},
             {compiled_training(
                  {.strategy = train::phased(),
                   .locations = {.optimizer = Location::kRemote, .activations = Location::kRemote},
                   .io_mode = IoMode::kCompute},
                  2),
              3, 12},
             {compiled_training(
                  {.accumulate = 2,
                   .locations = {.optimizer = Location::kRemote, .min_elements_sharded = 0}},
                  4),
              4, 12}});
  EXPECT_GE(tally.count(Verdict::kDefect), 1000);
  // These programs cannot have some kinds of defect: they use one device and one group, no kernel
  // has several tasks, and a wait that moves to the next step is still in time. "wait past the
  // border" covers waits for them.
  std::vector<std::string> elsewhere = message_kinds();
  elsewhere.insert(elsewhere.end(),
                   {"collective of another group", "exchange dropped", "exchange repeated",
                    "sync dropped", "tasks overlapped", "wait moved"});
  expect_defects(tally, kinds_without(mutation_kinds(), elsewhere));
}

// Skips, a tied weight, rows and two losses: sums in another order, updates before the last
// gradient, rows of other blocks, and stored values that are overwritten.
TEST(Mutants, OfSkipsAndTiedWeightsAreRefused) {
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
  std::vector<DamagedPlan> rows;
  for (const train::Options& step : steps)
    rows.push_back({compiled_skips(step), rows.size(), 24, kSkipKinds});
  rows.push_back(
      {compiled_skips({.strategy = train::phased(), .accumulate = 2, .locations = all_remote()}),
       1,
       8,
       {"updated early", "row of another block", "stored value overwritten"}});
  const std::vector<std::string> exchanged{"accumulations exchanged"};
  rows.push_back({compiled_skips({.accumulate = 2, .max_grad_norm = 0.5}), 1, 40, exchanged});
  for (const auto& strategy :
       {train::Strategy(train::resident()), train::Strategy(train::phased())}) {
    rows.push_back({compiled_skips({.strategy = strategy,
                                    .accumulate = 2,
                                    .locations = everything,
                                    .io_mode = IoMode::kIoOverlapped,
                                    .max_grad_norm = 0.5}),
                    1, 40, exchanged});
  }
  const Tally tally = judge(rows);
  EXPECT_GE(tally.count(Verdict::kDefect), 200);
  expect_defects(tally, kSkipKinds);
}

TEST(Mutants, OfBarriersAreRefused) {
  const models::Sizes sizes{.micro_batch = 8, .eval_batch = 16, .layers = 3, .width = 128};
  const Tally tally =
      judge({{compiled_mlp(sizes, nn::Optimizer::sgd()), 1, 100, {"sync dropped"}},
             {compiled_mlp(sizes, nn::Optimizer::adam()), 1, 100, {"sync dropped"}}});
  EXPECT_GE(tally.count(Verdict::kDefect), 10);
}

TEST(DryRun, ShowsWhatDamageDoes) {
  const exe::Executable right = plan(exe::plans::train_step());
  const Comparison difference = dry_runs(right);
  EXPECT_EQ(difference(right), "");
  const auto after = [&](std::string_view from, std::string_view to) {
    return difference(plan(exe::plans::replaced(exe::plans::train_step(), from, to)));
  };
  EXPECT_EQ(after("2 sync kernel", "2 kernel"), "stream 1 entry 0 differs");
  EXPECT_EQ(after("write %6 at arena0+0", "write %6 at frame+0"), "variable fc.weight differs");
  EXPECT_EQ(after("bytes 192 stride 0", "bytes 128 stride 0"), "reaches beyond arena 'frames'");
  EXPECT_EQ(after("3 kernel", "3 sync kernel"), "");
}

}  // namespace
}  // namespace sluice::property
