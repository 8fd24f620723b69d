#include "sluice/report/plan_names.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/exe/test_plans.h"
#include "sluice/report/plan_report.h"

namespace sluice::report {
namespace {

// A loop over two layers. An iteration loads a weight and its state, computes, accumulates a
// gradient, updates the weight with it and stores both again.
constexpr const char* kRowsText = R"plan(sluice executable 1
device 0 kind cpu isa avx2 memory 4096 workers 1 queues compute
tier 0 "host" space host budget 512
arena 0 "frames" kind frames space device device 0 bytes 384 stride 0
arena 1 "host" kind tier space host device -1 bytes 640 stride 0
stream 0 "images" in float32(16)
remote 0 "remote1" float32(16) entries 2 arena 1 offset 0 stride 64
remote 1 "remote2" float32(16) entries 2 arena 1 offset 128 stride 64
remote 2 "remote3" float32(16) entries 2 arena 1 offset 256 stride 64
remote 3 "remote4" float32(16) entries 4 arena 1 offset 384 stride 64
rows_of_block "fc.9" "fc.9" "fc.10"
provenance 0 forward op "remote_load" block "fc.9" variable "weight"
provenance 1 update op "remote_load" block "fc.9" variable "weight.first_order"
provenance 2 accumulation op "init" block "fc.9" variable "fc.9.weight"
provenance 3 forward op "gelu" block "fc.9" module "fc/9" line "layers.cc:31"
provenance 4 gradient op "gelu" block "fc.9" module "fc/9" line "layers.cc:31"
provenance 5 accumulation op "accumulate" block "fc.9" variable "fc.9.weight"
provenance 6 update op "scaled_add" block "fc.9" variable "fc.9.weight"
provenance 7 forward op "host_load" variable "images"
provenance 8 forward op "loop" per_iteration 0 1
value 0 "fc.9.weight" 0
value 1 "fc.10.weight" 0
value 2 "fc.9.weight.first_order" 0
value 3 "fc.10.weight.first_order" 0
value 4 "images_init" 1 provenance 7
value 5 "rows_subgraph(3)/weight_remote_load__t1" 1 provenance 0
value 6 "rows_subgraph(3)/weight.first_order_remote_load__t2" 1 provenance 1
value 7 "rows_subgraph(3)/accum.weight__t3" 0 provenance 2
value 8 "Block_subgraph(0)/gelu_103" 0 provenance 3
value 9 "Block_subgraph(0)_bwd/Gradient___gelu_103" 0 provenance 4
value 10 "Block_subgraph(0)_bwd/accum.weight" 1 provenance 5
value 11 "AdamStep_subgraph(1)/first_order" 1 provenance 6
value 12 "AdamStep_subgraph(1)/variable" 1 provenance 6
function 0 "rows_subgraph(3)" memo "" device 0 index_params 1 frame 320 bound 320
  param 0 "x" read %4 bytes 64 float32(16) row
  buffer "rows_subgraph(3)/weight_remote_load__t1" offset 0 bytes 64 steps 0 10 value %5
  buffer "rows_subgraph(3)/weight.first_order_remote_load__t2" offset 64 bytes 64 steps 1 10 value %6
  buffer "rows_subgraph(3)/accum.weight__t3" offset 128 bytes 64 steps 2 10 value %7
  buffer "Block_subgraph(0)/gelu_103" offset 192 bytes 64 steps 3 10 value %8
  buffer "Block_subgraph(0)_bwd/Gradient___gelu_103" offset 256 bytes 64 steps 5 10 value %9
  0 issue remote_load 0 entry p0 queue 0 token 0 provenance 0
      write %5 at frame+0 bytes 64 float32(16) row
  1 issue remote_load 1 entry p0 queue 0 token 1 provenance 1
      write %6 at frame+64 bytes 64 float32(16) row
  2 kernel cpu.fill Init tasks 1 workspace 0 provenance 2
      write %7 at frame+128 bytes 64 float32(16) row
  3 kernel cpu.gelu Gelu tasks 1 workspace 0 provenance 3
      read %4 at param0+0 bytes 64 float32(16) row
      read %5 at frame+0 bytes 64 float32(16) row
      write %8 at frame+192 bytes 64 float32(16) row
  4 issue remote_store 2 entry p0 queue 0 token 2
      read %8 at frame+192 bytes 64 float32(16) row
  5 kernel cpu.mul Mul tasks 1 workspace 0 provenance 4
      read %8 at frame+192 bytes 64 float32(16) row
      write %9 at frame+256 bytes 64 float32(16) row
  6 kernel cpu.add Accumulate tasks 1 workspace 0 provenance 5
      update %7>%10 at frame+128 bytes 64 float32(16) row
      read %9 at frame+256 bytes 64 float32(16) row
  7 kernel cpu.add Accumulate tasks 1 workspace 0 provenance 6
      update %6>%11 at frame+64 bytes 64 float32(16) row
      read %10 at frame+128 bytes 64 float32(16) row
  8 kernel cpu.add ScaledAdd tasks 1 workspace 0 provenance 6
      update %5>%12 at frame+0 bytes 64 float32(16) row
      read %11 at frame+64 bytes 64 float32(16) row
  9 issue remote_store 0 entry p0 queue 0 token 3
      read %12 at frame+0 bytes 64 float32(16) row
function 1 "main" memo "" device 0 index_params 0 frame 384 bound 384
  buffer "images_init" offset 0 bytes 64 steps 0 2 value %4
  buffer "frame of rows_subgraph(3)" offset 64 bytes 320 steps 1 2
  0 sync issue stream_in 0 entry 0 queue 0 token 0 provenance 7
      write %4 at frame+0 bytes 64 float32(16) row
  1 sync loop 0 frame frame+64 trips 2 provenance 8
      index it
      read %4 at frame+0 bytes 64 float32(16) row
program "train"
  entry device 0 function 1 frame arena0+0
  stream 0 entries 1
end
)plan";

// The plan with the two layers' weights in remote buffer 0 and their state in buffer 1.
exe::Executable rows(const std::string& text = kRowsText) {
  exe::Executable e = exe::plans::plan(text);
  for (const int64_t state : {0, 1}) {
    for (const int64_t layer : {0, 1}) {
      const std::string path = layer == 0 ? "fc.9.weight" : "fc.10.weight";
      e.variables.push_back({.path = state == 0 ? path : path + ".first_order",
                             .arena = exe::ArenaId(1),
                             .offset = 128 * state + 64 * layer,
                             .bytes = 64,
                             .buffer = exe::BufferId(state),
                             .entry = layer});
      const exe::VariableId owner(state == 0 ? -1 : layer);
      e.origins.variables.push_back({state == 0 ? OpRole::kForward : OpRole::kUpdate, owner});
    }
  }
  return e;
}

TEST(MemoryContents, NamesBuffersByTheProvenanceOfTheirValues) {
  const exe::Executable e = rows();
  const exe::MemoryContents contents(e);
  const std::array<std::pair<const char*, const char*>, 5> expected = {
      {{"variables", "fc.9.weight … fc.10.weight, loaded"},
       {"optimizer state", "fc.9.weight, first_order … fc.10.weight, first_order, loaded"},
       {"accumulators", "fc.9.weight and 1 more, accumulator"},
       {"activations", "fc.9 … fc.10, gelu output (forward)"},
       {"gradients", "fc.9 … fc.10, gradient of gelu (backward)"}}};
  for (size_t b = 0; b < expected.size(); ++b) {
    const auto [kind, name] = contents.of_buffer(exe::FunctionId(0), b);
    EXPECT_EQ(kind, expected[b].first) << b;
    EXPECT_EQ(name, expected[b].second);
  }
  EXPECT_EQ(contents.of_buffer(exe::FunctionId(1), 0).name, "images, read from its stream");
}

TEST(MemoryContents, NamesTheEntriesOfTiers) {
  const exe::Executable e = rows();
  const exe::MemoryContents contents(e);
  EXPECT_EQ(contents.of_remote(exe::BufferId(0)).name, "fc.9.weight … fc.10.weight");
  EXPECT_EQ(contents.of_remote(exe::BufferId(2)).name, "fc.9 … fc.10, gelu output");
  EXPECT_EQ(contents.of_remote(exe::BufferId(3)).name, "remote4");  // No step uses it.
  EXPECT_EQ(contents.of_variable(exe::VariableId(3)).name, "fc.10.weight, first_order");
  EXPECT_EQ(contents.of_variable(exe::VariableId(3)).kind, "optimizer state");
  const exe::Executable known =
      rows(exe::plans::replaced(kRowsText, "remote_load 0 entry p0", "remote_load 0 entry 1"));
  EXPECT_EQ(exe::MemoryContents(known).of_buffer(exe::FunctionId(0), 0).name,
            "fc.10.weight, loaded");
}

TEST(MemoryContents, NamesTheRoleOfAnActivation) {
  exe::Executable e = rows();
  e.origins.rows[3].role = OpRole::kRecomputation;
  EXPECT_EQ(exe::MemoryContents(e).of_buffer(exe::FunctionId(0), 3).name,
            "fc.9 … fc.10, gelu output (recomputation)");
}

// A model calls an activation between two layers, which have modules. The activation has none.
TEST(MemoryContents, AnOpOutsideAllModulesHasThatOfItsKernel) {
  exe::Executable e = rows();
  e.origins.rows[3].block = e.origins.rows[3].module_path = "";
  EXPECT_EQ(exe::MemoryContents(e).of_buffer(exe::FunctionId(0), 3).name, "gelu output (forward)");
  exe::Step& step = e.functions[exe::FunctionId(0)].steps[3];
  std::get<exe::Kernel>(step.body).stages.resize(2);
  step.provenance = static_cast<int32_t>(e.origins.rows.size());
  e.origins.rows.push_back({.module_path = "body/fc1", .op = "matmul"});
  e.origins.rows.push_back(e.origins.rows[3]);
  EXPECT_EQ(exe::MemoryContents(e).of_buffer(exe::FunctionId(0), 3).name,
            "body.fc1, gelu output (forward)");
  EXPECT_EQ(exe::MemoryContents(e).of_buffer(exe::FunctionId(0), 3).kind, "activations");
}

TEST(PlanNames, NamesFunctionsAndPartsByBlockAndRole) {
  using List = std::vector<std::string>;
  exe::Executable e = rows();
  EXPECT_EQ(PlanNames(e).of_function(exe::FunctionId(0)),
            "fc.9 … fc.10 fwd, fc.9 … fc.10 bwd, update, a row of a loop");
  EXPECT_EQ(PlanNames(e).of_function(exe::FunctionId(1)), "program train");
  EXPECT_EQ(PlanNames(e).blocks_of_program(0), (List{"fc.9 … fc.10 fwd", "fc.9 … fc.10 bwd"}));
  EXPECT_EQ(PlanNames(e).parts_of_step(exe::FunctionId(1), 1),
            List{"fc.9 … fc.10 fwd, fc.9 … fc.10 bwd"});
  EXPECT_TRUE(PlanNames(e).has_phases());
  // A call that recomputes makes all forward ops of its callee part of the backward part. A loop
  // over rows then runs the backward parts of the rows in its order.
  e.origins.rows[8].role = OpRole::kRecomputation;
  e.origins.rows[8].at = {0, 1};
  e.origins.rows[8].per_iteration = {0, -1};
  EXPECT_EQ(PlanNames(e).part_of_function(exe::FunctionId(0)), "fc.9 … fc.10 bwd");
  EXPECT_EQ(PlanNames(e).parts_of_step(exe::FunctionId(1), 1), (List{"fc.10 bwd", "fc.9 bwd"}));
  // Without rows, functions have the names of modules.
  e.origins.rows_of_blocks.clear();
  EXPECT_EQ(PlanNames(e).of_function(exe::FunctionId(0)),
            "fc.9, forward, backward, update, a row of a loop");
  EXPECT_FALSE(PlanNames(e).has_phases());
}

TEST(PlanNames, KnowsNothingWithoutProvenance) {
  exe::Executable e = rows();
  e.origins = {};
  for (exe::Function& f : e.functions) {
    for (exe::Step& step : f.steps) step.provenance = -1;
  }
  EXPECT_EQ(exe::MemoryContents(e).of_buffer(exe::FunctionId(0), 3).name,
            "Block_subgraph(0)/gelu_103");
  EXPECT_EQ(PlanNames(e).of_function(exe::FunctionId(0)),
            "rows_subgraph(3), an iteration of a loop");
  EXPECT_TRUE(PlanNames(e).blocks_of_program(0).empty());
}

TEST(MemoryContents, KeepsTheNameOfAVariableThatIsOverwritten) {
  const exe::Executable e = exe::plans::plan(exe::plans::train_step());
  EXPECT_EQ(exe::MemoryContents(e).of_variable(exe::VariableId(0)).name, "fc.weight");
}

TEST(Shares, AddUpToTheBytesOfEachMemory) {
  for (const std::string& text :
       {std::string(kRowsText), exe::plans::train_step(), exe::plans::overlapped_loop(),
        exe::plans::two_devices(), exe::plans::carried_ring(), exe::plans::collectives()}) {
    exe::Executable e = text == kRowsText ? rows() : exe::plans::plan(text);
    e.replicas = 2;
    const PlanReport report = plan_report(e, 2);
    ASSERT_EQ(report.shares.size(), report.memories.size());
    for (size_t m = 0; m < report.memories.size(); ++m) {
      int64_t sum = 0;
      for (const KindBytes& k : report.shares[m].kinds) {
        EXPECT_GT(k.bytes, 0);
        sum += k.bytes;
      }
      EXPECT_EQ(sum, report.memories[m].total_bytes) << report.memories[m].name;
      EXPECT_LE(report.shares[m].peak_objects.size(), 2u);
    }
  }
}

TEST(Shares, HaveAKindForEachHolder) {
  const PlanReport report = plan_report(rows());
  const auto bytes = [&](size_t memory, std::string_view kind) {
    for (const KindBytes& k : report.shares[memory].kinds) {
      if (k.kind == kind) return k.bytes;
    }
    return int64_t{0};
  };
  for (const char* kind : {"variables", "optimizer state", "accumulators", "activations",
                           "gradients", "inputs and outputs"})
    EXPECT_EQ(bytes(0, kind), 64) << kind;
  EXPECT_EQ(bytes(1, "variables"), 128);
  EXPECT_EQ(bytes(1, "optimizer state"), 128);
  EXPECT_EQ(bytes(1, "activations"), 128);
}

}  // namespace
}  // namespace sluice::report
