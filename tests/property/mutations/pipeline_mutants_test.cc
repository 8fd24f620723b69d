// Damage to the plans of pipelined training steps: the checker refuses it, or it changes no bit.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>

#include "../mutants.h"
#include "../plan_run.h"
#include "../random_graph_run.h"
#include "../training_programs.h"
#include "mutate.h"
#include "sluice/check/checker.h"

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

TEST(PipelineMutants, AreRefused) {
  MutantCount count;
  uint64_t seed = 1;
  for (const Pipeline& p : pipelines()) {
    SCOPED_TRACE(p.name);
    expect_mutants_refused(compiled(program_of(p).ir, p.devices).executable, seed++, 8, count);
  }
  print(count);
  EXPECT_GE(count.defects, 300);
  for (const std::string& kind : kPipelineKinds) EXPECT_GT(count.defects_by_kind[kind], 0) << kind;
  for (const char* kind : {"ring one slot short", "wait dropped", "wait moved", "load dropped"})
    EXPECT_GT(count.defects_by_kind[kind], 0) << kind;
}

// A mutant that the checker accepts has the interpreter's bits: in its values, and when it runs.
TEST(PipelineMutants, ThatAreAcceptedHaveTheInterpretersBits) {
  int refused = 0, alike = 0;
  for (const Pipeline& p : pipelines()) {
    SCOPED_TRACE(p.name);
    const RandomProgram program = program_of(p);
    const Outcome want = interpreted(program, Remote::kLeftOut);
    EXPECT_FALSE(has_nonfinite(want));
    EXPECT_EQ(bit_difference(want, executed(program, {.devices = p.devices})), "");
    const Outcome values = interpreted(program, Remote::kShown);
    Compiled plan = compiled(program.ir, p.devices);
    const exe::Executable right = plan.executable;
    const std::array<RunBytes, 2> runs{run_plan(right, 0), run_plan(right, 1)};
    for (const Mutant& m : mutate(right, 7, 12, kPipelineKinds)) {
      if (!check::violations(m.plan).empty()) {
        ++refused;
        continue;
      }
      ++alike;
      const std::string about = m.kind + " at " + m.about;
      for (size_t seed = 0; seed < runs.size(); ++seed)
        EXPECT_EQ(run_plan(m.plan, seed), runs[seed]) << about;
      plan.executable = m.plan;
      EXPECT_EQ(bit_difference(values, by_values(program, plan)), "") << about;
    }
  }
  std::printf("%d mutants refused, %d run alike\n", refused, alike);
  EXPECT_GT(refused, 300);
  EXPECT_GT(alike, 10);
}

}  // namespace
}  // namespace sluice::property
