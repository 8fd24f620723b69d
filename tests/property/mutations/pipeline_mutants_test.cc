// Damage to the plans of pipelined training steps: the checker refuses it, or it changes no bit.
#include <gtest/gtest.h>

#include "../damage.h"
#include "../dry_run.h"
#include "../plan_run.h"
#include "../random_graph_run.h"
#include "../training_programs.h"
#include "mutate.h"

namespace sluice::property {
namespace {

using train::Location;
using train::PipelinedExecution;
using train::Schedule;
using train::Stage;

struct Pipeline {
  std::string name;
  train::Options step;
  int devices;
};

/// Steps of SkipNetwork, whose first and last blocks share a weight.
std::vector<Pipeline> pipelines() {
  const auto in_stages = [](Schedule schedule, auto... stages) {
    return PipelinedExecution{std::vector<Stage>{stages...}, schedule};
  };
  return {{"2 stages, grouped",
           {.strategy = in_stages(Schedule::kGrouped, Stage("first", "row0"),
                                  Stage("row1", "row2", "last")),
            .accumulate = 5},
           2},
          {"3 stages, interleaved, remote activations and state",
           {.strategy = in_stages(Schedule::kInterleaved, Stage("first"), Stage("row0", "row1"),
                                  Stage("row2", "last")),
            .accumulate = 6,
            .locations = {.optimizer = Location::kRemote, .activations = Location::kRemote},
            .io_mode = IoMode::kIoOverlapped},
           3},
          {"4 stages, grouped, remote activations",
           {.strategy = in_stages(Schedule::kGrouped, Stage("first"), Stage("row0"),
                                  Stage("row1", "row2"), Stage("last")),
            .accumulate = 9,
            .locations = {.activations = Location::kRemote}},
           4},
          {"4 stages, interleaved",
           {.strategy = in_stages(Schedule::kInterleaved, Stage("first"), Stage("row0"),
                                  Stage("row1", "row2"), Stage("last")),
            .accumulate = 7},
           4},
          {"2 stages, grouped, a loop that the checker leaves early",
           {.strategy = in_stages(Schedule::kGrouped, Stage("first", "row0", "row1"),
                                  Stage("row2", "last")),
            .accumulate = 60},
           2},
          {"4 stages, without a loop",
           {.strategy = in_stages(Schedule::kGrouped, Stage("first"), Stage("row0"),
                                  Stage("row1", "row2"), Stage("last")),
            .accumulate = 2},
           4}};
}

RandomProgram program_of(const Pipeline& p) {
  RandomProgram program{.ir = Ir(), .runs = {"train", "train", "eval"}};
  build_training(program.ir, skip_network(), nn::Optimizer::adam(), p.step);
  return program;
}

const std::vector<std::string> kPipelineKinds{"updated before the drain",
                                              "updated early",
                                              "ramp step moved",
                                              "step repeated",
                                              "step dropped",
                                              "exchange dropped",
                                              "exchange repeated",
                                              "channel one slot short",
                                              "message dropped",
                                              "message repeated",
                                              "messages exchanged",
                                              "message moved",
                                              "message swapped",
                                              "accumulations exchanged",
                                              "message of another channel"};

// A damaged plan that the checker accepts has the interpreter's bits: in its values, and when it
// runs.
TEST(PipelineMutants, AreRefusedOrChangeNoBit) {
  const std::vector<std::string> others = kinds_without(mutation_kinds(), kPipelineKinds);
  Tally tally, of_pipelines;
  uint64_t seed = 1;
  for (const Pipeline& p : pipelines()) {
    SCOPED_TRACE(p.name);
    const RandomProgram program = program_of(p);
    const Outcome want = interpreted(program, Remote::kLeftOut);
    EXPECT_FALSE(has_nonfinite(want));
    EXPECT_EQ(bit_difference(want, executed(program, {.devices = p.devices})), "");
    const Compiled plan = compiled(program.ir, p.devices);
    PlanUnderTest under_test{.right = plan.executable, .dry_runs = dry_runs(plan.executable)};
    tally += judge(under_test, mutations(under_test.right, seed++, 8, others));
    under_test.runs = [values = value_runs(program, plan),
                       runs = plan_runs(under_test.right)](const exe::Executable& e) {
      const std::string difference = values(e);
      return difference.empty() ? runs(e) : difference;
    };
    of_pipelines += judge(under_test, mutations(under_test.right, 7, 20, kPipelineKinds));
  }
  EXPECT_GT(of_pipelines.count(Verdict::kDefect) + of_pipelines.count(Verdict::kChecker), 1000);
  EXPECT_GT(of_pipelines.count(Verdict::kAlike), 10);
  expect_defects(of_pipelines, kPipelineKinds);
  tally += of_pipelines;
  print(tally);
  EXPECT_GE(tally.count(Verdict::kDefect), 2000);
  expect_defects(tally, {"ring one slot short", "ring slot ignored", "ring slot below 0",
                         "wait dropped", "wait moved", "load dropped"});
}

}  // namespace
}  // namespace sluice::property
