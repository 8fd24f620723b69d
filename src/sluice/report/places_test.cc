#include "sluice/report/places.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <array>
#include <string_view>

#include "sluice/exe/test_plans.h"
#include "sluice/report/plan_report.h"

namespace sluice::report {
namespace {

// A loop over two layers. A turn loads a weight and its state, computes, accumulates a gradient,
// updates the weight with it and stores both again.
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
value 0 "fc.9.weight" 0
value 1 "fc.10.weight" 0
value 2 "fc.9.weight.first_order" 0
value 3 "fc.10.weight.first_order" 0
value 4 "images_init" 1
value 5 "rows_subgraph(3)/weight_remote_load__t1" 1
value 6 "rows_subgraph(3)/weight.first_order_remote_load__t2" 1
value 7 "rows_subgraph(3)/accum.weight__t3" 0
value 8 "Block_subgraph(0)/gelu_103" 0
value 9 "Block_subgraph(0)_bwd/Gradient___gelu_103" 0
value 10 "Block_subgraph(0)_bwd/accum.weight" 1
value 11 "AdamStep_subgraph(1)/first_order" 1
value 12 "AdamStep_subgraph(1)/variable" 1
function 0 "rows_subgraph(3)" memo "" device 0 index_params 1 frame 320 bound 320
  param 0 "x" read %4 bytes 64 float32(16) row
  buffer "rows_subgraph(3)/weight_remote_load__t1" offset 0 bytes 64 steps 0 10
  buffer "rows_subgraph(3)/weight.first_order_remote_load__t2" offset 64 bytes 64 steps 0 10
  buffer "rows_subgraph(3)/accum.weight__t3" offset 128 bytes 64 steps 2 10
  buffer "Block_subgraph(0)/gelu_103" offset 192 bytes 64 steps 3 10
  buffer "Block_subgraph(0)_bwd/Gradient___gelu_103" offset 256 bytes 64 steps 5 10
  0 issue remote_load 0 entry p0 queue 0 token 0
      write %5 at frame+0 bytes 64 float32(16) row
  1 issue remote_load 1 entry p0 queue 0 token 1
      write %6 at frame+64 bytes 64 float32(16) row
  2 kernel cpu.fill Fill tasks 1 workspace 0
      write %7 at frame+128 bytes 64 float32(16) row
  3 kernel cpu.gelu Gelu tasks 1 workspace 0
      read %4 at param0+0 bytes 64 float32(16) row
      read %5 at frame+0 bytes 64 float32(16) row
      write %8 at frame+192 bytes 64 float32(16) row
  4 issue remote_store 2 entry p0 queue 0 token 2
      read %8 at frame+192 bytes 64 float32(16) row
  5 kernel cpu.mul Mul tasks 1 workspace 0
      read %8 at frame+192 bytes 64 float32(16) row
      write %9 at frame+256 bytes 64 float32(16) row
  6 kernel cpu.add Accumulate tasks 1 workspace 0
      update %7>%10 at frame+128 bytes 64 float32(16) row
      read %9 at frame+256 bytes 64 float32(16) row
  7 kernel cpu.add Accumulate tasks 1 workspace 0
      update %6>%11 at frame+64 bytes 64 float32(16) row
      read %10 at frame+128 bytes 64 float32(16) row
  8 kernel cpu.add ScaledAdd tasks 1 workspace 0
      update %5>%12 at frame+0 bytes 64 float32(16) row
      read %11 at frame+64 bytes 64 float32(16) row
  9 issue remote_store 0 entry p0 queue 0 token 3
      read %12 at frame+0 bytes 64 float32(16) row
function 1 "main" memo "" device 0 index_params 0 frame 384 bound 384
  buffer "images_init" offset 0 bytes 64 steps 0 2
  buffer "frame of rows_subgraph(3)" offset 64 bytes 320 steps 1 2
  0 sync issue stream_in 0 entry 0 queue 0 token 0
      write %4 at frame+0 bytes 64 float32(16) row
  1 sync loop 0 frame frame+64 trips 2
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
                             .arena = 1,
                             .offset = 128 * state + 64 * layer,
                             .bytes = 64,
                             .buffer = static_cast<int32_t>(state),
                             .entry = layer});
    }
  }
  return e;
}

TEST(Places, FollowsVariablesThroughLoadsAndUpdates) {
  const exe::Executable e = rows();
  const Places places(e);
  const std::array<std::pair<Holding, const char*>, 5> expected = {
      {{Holding::kVariable, "fc.9 … fc.10, weight, loaded"},
       {Holding::kState, "fc.9 … fc.10, weight, first_order, loaded"},
       {Holding::kAccumulator, "fc.9 … fc.10, weight, accumulator"},
       {Holding::kActivation, "fc.9 … fc.10, gelu output (forward)"},
       {Holding::kGradient, "fc.9 … fc.10, gradient of gelu (backward)"}}};
  for (int32_t b = 0; b < 5; ++b) {
    const Place place = places.of_buffer(0, b);
    EXPECT_EQ(place.kind, expected[static_cast<size_t>(b)].first) << b;
    EXPECT_EQ(place.text, expected[static_cast<size_t>(b)].second);
  }
  EXPECT_EQ(places.of_buffer(1, 0).text, "images, read from its stream");
}

TEST(Places, NamesTheEntriesOfTiers) {
  const exe::Executable e = rows();
  const Places places(e);
  EXPECT_EQ(places.of_remote(0).text, "fc.9 … fc.10, weight");
  EXPECT_EQ(places.of_remote(1).text, "fc.9 … fc.10, weight, first_order");
  EXPECT_EQ(places.of_remote(2).text, "fc.9 … fc.10, gelu output");
  EXPECT_EQ(places.of_remote(3).text, "remote4");  // No step uses it.
  EXPECT_EQ(places.of_variable(3).text, "fc.10.weight, first_order");
  EXPECT_EQ(places.of_variable(3).kind, Holding::kState);
}

TEST(Places, NamesOneVariableWhereTheEntryIsKnown) {
  const exe::Executable e =
      rows(exe::plans::replaced(kRowsText, "remote_load 0 entry p0", "remote_load 0 entry 1"));
  EXPECT_EQ(Places(e).of_buffer(0, 0).text, "fc.10.weight, loaded");
  EXPECT_EQ(Places(e).of_buffer(0, 3).text, "fc.10, gelu output (forward)");
}

TEST(Places, NamesFunctionsByModuleAndPhase) {
  const exe::Executable e = rows();
  EXPECT_EQ(Places(e).of_function(0), "fc.9 … fc.10, forward, backward, update, a row of a loop");
  EXPECT_EQ(Places(e).of_function(1), "program train");
}

std::string with_names(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

TEST(Places, IsNotMisledByTheNamesOfModules) {
  // A module TimeStep does not update variables; the other values do not belong to an optimizer
  // either.
  std::string text = with_names(kRowsText, "AdamStep_subgraph(1)", "Block_subgraph(0)_bwd");
  text = with_names(text, "Block_subgraph(0)/", "TimeStep_subgraph(0)/");
  EXPECT_EQ(Places(rows(text)).of_function(0), "fc.9 … fc.10, forward, backward, a row of a loop");
  // A user's loop. Its turns do not each move another row.
  text = with_names(kRowsText, "entry p0", "entry 0");
  EXPECT_EQ(Places(rows(text)).of_function(0), "fc.9, forward, backward, update, a turn of a loop");
  text = with_names(kRowsText, "rows_subgraph(3)", "rowsum_subgraph(3)");
  EXPECT_EQ(Places(rows(text)).of_function(0),
            "fc.9 … fc.10, forward, backward, update, a turn of a loop");
}

// The plan of kRowsText as phases of the block `name`, whose graph is batch-serialised.
std::string phased(const std::string& name) {
  std::string text = with_names(kRowsText, "Block_subgraph(0)", name + "_subgraph(0)");
  text = with_names(text, "rows_subgraph(3)/accum.weight",
                    name + "_bwd__repeat_graph_subgraph(4)/accum.weight");
  return with_names(text, "cpu.fill Fill", "cpu.fill Init");
}

TEST(Places, NamesPhasesByBlockAndDirectionInOrder) {
  using List = std::vector<std::string>;
  exe::Executable e = rows(phased("fc.9"));
  EXPECT_EQ(Places(e).blocks_of_program(0), (List{"fc.9 … fc.10 fwd", "fc.9 … fc.10 bwd"}));
  EXPECT_EQ(Places(e).of_function(0),
            "fc.9 … fc.10 fwd, fc.9 … fc.10 bwd, update, a row of a loop");
  // In a function of the backward phase, forward ops are computed again.
  e.functions[0].name = "fc.9_bwd__batch_serial_step_subgraph(5)";
  EXPECT_EQ(Places(e).of_function(0), "fc.9 … fc.10 bwd, update, a micro-batch of a loop");
  EXPECT_EQ(Places(e).blocks_of_program(0), List{"fc.9 … fc.10 bwd"});
  // Blocks whose names differ from those of their weights. The name of the second block looks like
  // that of a gradient.
  EXPECT_EQ(Places(rows(phased("B1"))).blocks_of_program(0),
            (List{"B1 and 1 more fwd", "B1 and 1 more bwd"}));
  EXPECT_EQ(Places(rows(phased("B_bwd"))).blocks_of_program(0),
            (List{"B_bwd and 1 more fwd", "B_bwd and 1 more bwd"}));
  // Graphs of blocks without loops of their own over micro-batches.
  EXPECT_TRUE(Places(e).has_phases());
  EXPECT_FALSE(Places(rows()).has_phases());
  EXPECT_EQ(Places(rows()).blocks_of_program(0),
            (List{"Block and 1 more fwd", "Block and 1 more bwd"}));
}

TEST(Places, KnowsEveryGradientGraph) {
  const std::string gelu = "Block_subgraph(0)/gelu_103";
  for (const auto& [graph, phase] :
       {std::pair("Block_subgraph(0)_bwd_1", "backward"), std::pair("encoder_bwd", "forward"),
        std::pair("Block_subgraph(0)_bwd_x_subgraph(4)", "forward")}) {
    const exe::Executable e = rows(with_names(kRowsText, gelu, std::string(graph) + "/gelu_103"));
    EXPECT_EQ(Places(e).of_buffer(0, 3).text, fmt::format("fc.9 … fc.10, gelu output ({})", phase));
  }
}

TEST(Places, TakesAModuleNamedAccumForAModule) {
  exe::Executable e = rows();
  e.variables[0].path = "accum.weight";
  EXPECT_EQ(Places(e).of_variable(0).text, "accum.weight");
  EXPECT_EQ(Places(e).of_variable(0).kind, Holding::kVariable);
  e.variables[1].path = "weight";
  EXPECT_EQ(Places(e).of_variable(0).text, "weight, accumulator");
}

TEST(Places, KeepsTheNameOfAVariableThatIsOverwritten) {
  const exe::Executable e = exe::plans::plan(exe::plans::train_step());
  const Places places(e);
  EXPECT_EQ(places.of_variable(0).text, "fc.weight");
  EXPECT_EQ(places.of_buffer(0, 0).text, "image, read from its stream");
}

TEST(Places, ComparesNumbersByTheirValue) {
  const NaturalLess less;
  EXPECT_TRUE(less("fc.9.weight", "fc.10.weight"));
  EXPECT_FALSE(less("fc.10.weight", "fc.9.weight"));
  EXPECT_TRUE(less("fc.9.bias", "fc.9.weight"));
  EXPECT_TRUE(less("fc", "fc.0"));
  EXPECT_FALSE(less("fc.0", "fc.0"));
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
      EXPECT_LE(report.shares[m].holders.size(), 2u);
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
