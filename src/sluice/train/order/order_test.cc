#include "sluice/train/order/order.h"
#include "sluice/train/cut/test_ids.h"

#include <gtest/gtest.h>

#include "sluice/base/test_refusals.h"
#include "sluice/train/order/dependences.h"
#include "sluice/train/order/strategies.h"

namespace sluice::train {
namespace {

// A table of stages is not indexed by blocks, devices or plain numbers.
template <typename Table, typename Index>
constexpr bool kHasIndex = requires(Table table, Index index) {
  table[index];
};
static_assert(kHasIndex<Ids<StageId, int>, StageId>);
static_assert(!kHasIndex<Ids<StageId, int>, BlockId>);
static_assert(!kHasIndex<Ids<StageId, int>, DeviceId>);
static_assert(!kHasIndex<Ids<StageId, int>, size_t>);

TEST(Order, HasATextThatParsesBack) {
  const std::string text =
      "seeds stage 0, micro-batch 0\n"
      "for i in 3 {\n"
      "  for j in 2 {\n"
      "    forward stage 1, block -2 * i + 7, micro-batch 4 * i + j - 1\n"
      "    backward stage 0, micro-batch j\n"
      "  }\n"
      "  update stage 1, block -i + 7\n"
      "}\n"
      "norm\n"
      "update\n";
  EXPECT_EQ(to_string(parse_order(text)), text);
}

TEST(Order, RefusesWrongTexts) {
  const auto parse = [](const char* text) { return [text] { parse_order(text); }; };
  expect_refused({
      {"a word", parse("norm\nrun stage 0"), "line 2: must be a task"},
      {"a loop's end", parse("}"), "a '}' without a loop"},
      {"an open loop", parse("for i in 2 {\nnorm\n"), "the loop of line 1 lacks its '}'"},
      {"a name", parse("for j in 2 {"), "'j' in place of 'i'"},
      {"no trips", parse("for i in 0 {"), "0 trips; at least 1 is right"},
      {"a word after the end", parse("for i in 2 { norm"), "'norm' after the line's end"},
      {"a loop that is not around", parse("forward stage 0, micro-batch i"),
       "'i' in place of a number"},
      {"no micro-batch", parse("forward stage 0"), "a task without its micro-batch"},
      {"a micro-batch of an update", parse("update micro-batch 0"), "'micro-batch'"},
      {"no number", parse("forward stage 0, micro-batch"), "no number"},
  });
}

TEST(Order, OfAResidentStepIsOneLoop) {
  const PipelineOrder one = training_order(Schedule::kSequential, 1);
  EXPECT_EQ(to_string(staged_order(one, {.micro_batches = 4, .has_norm = true})),
            "for i in 4 {\n"
            "  forward stage 0, micro-batch i\n"
            "  backward stage 0, micro-batch i\n"
            "}\n"
            "norm\n"
            "update\n");
  EXPECT_EQ(to_string(staged_order(one, {.micro_batches = 1, .updates = 2})),
            "for i in 2 {\n"
            "  forward stage 0, micro-batch 0\n"
            "  backward stage 0, micro-batch 0\n"
            "  update\n"
            "}\n");
}

TEST(Order, OfAPipelineHasRampsAroundItsLoop) {
  const PipelineOrder two = training_order(Schedule::kInterleaved, 2);
  EXPECT_EQ(to_string(staged_order(two, {.micro_batches = 6, .updates = 3})),
            "for i in 3 {\n"
            "  forward stage 0, micro-batch 0\n"
            "  forward stage 1, micro-batch 0\n"
            "  for j in 5 {\n"
            "    backward stage 1, micro-batch j\n"
            "    forward stage 0, micro-batch j + 1\n"
            "    backward stage 0, micro-batch j\n"
            "    forward stage 1, micro-batch j + 1\n"
            "  }\n"
            "  backward stage 1, micro-batch 5\n"
            "  backward stage 0, micro-batch 5\n"
            "  update\n"
            "}\n");
  EXPECT_EQ(to_string(staged_order(evaluation_order(2), {.micro_batches = 3, .has_update = false})),
            "forward stage 0, micro-batch 0\n"
            "for i in 2 {\n"
            "  forward stage 1, micro-batch i\n"
            "  forward stage 0, micro-batch i + 1\n"
            "}\n"
            "forward stage 1, micro-batch 2\n");
}

TEST(Order, OfPhasesVisitsABlockWithAllMicroBatches) {
  const std::vector<PhasedBlocks> groups = {
      {.first = BlockId(0), .has_gradient = false},
      {.first = BlockId(1), .rows = 3, .forward_loop = 3, .backward_loop = 3},
      {.first = BlockId(4)}};
  EXPECT_EQ(to_string(phased_order(groups, MicroBatchForm::kLoop, PhasedUpdates::kInBackward, true,
                                   {.micro_batches = 5, .updates = 1})),
            "for i in 5 {\n"
            "  seeds stage 0, micro-batch i\n"
            "}\n"
            "for i in 5 {\n"
            "  forward stage 0, block 0, micro-batch i\n"
            "}\n"
            "for i in 3 {\n"
            "  for j in 5 {\n"
            "    forward stage 0, block i + 1, micro-batch j\n"
            "  }\n"
            "}\n"
            "for i in 5 {\n"
            "  both stage 0, block 4, micro-batch i\n"
            "}\n"
            "update stage 0, block 4\n"
            "for i in 3 {\n"
            "  for j in 5 {\n"
            "    backward stage 0, block -i + 3, micro-batch j\n"
            "  }\n"
            "  update stage 0, block -i + 3\n"
            "}\n");
}

TEST(Order, OfPhasesRunsSomeRowsBeforeTheLoop) {
  const std::vector<PhasedBlocks> groups = {
      {.first = BlockId(0), .rows = 3, .forward_loop = 3, .backward_loop = 2, .update_loop = 3},
      {.first = BlockId(3)}};
  const Order order = phased_order(groups, MicroBatchForm::kLoop, PhasedUpdates::kApart, false,
                                   {.micro_batches = 5, .updates = 2});
  const std::string text = to_string(order);
  EXPECT_EQ(text.substr(text.find("  for j in 5 {\n    backward")),
            "  for j in 5 {\n"
            "    backward stage 0, block 2, micro-batch j\n"
            "  }\n"
            "  for j in 2 {\n"
            "    for k in 5 {\n"
            "      backward stage 0, block -j + 1, micro-batch k\n"
            "    }\n"
            "  }\n"
            "  update stage 0, block 3\n"
            "  for j in 3 {\n"
            "    update stage 0, block -j + 2\n"
            "  }\n"
            "}\n");
}

TEST(Order, OfAnEvaluationHasRowsInLoops) {
  const std::vector<PhasedBlocks> groups = {{.first = BlockId(0)},
                                            {.first = BlockId(1), .rows = 3, .forward_loop = 3},
                                            {.first = BlockId(4), .rows = 2}};
  const Order order = row_order(groups, {.micro_batches = 5});
  EXPECT_EQ(to_string(order),
            "for i in 5 {\n"
            "  forward stage 0, block 0, micro-batch i\n"
            "  for j in 3 {\n"
            "    forward stage 0, block j + 1, micro-batch i\n"
            "  }\n"
            "  forward stage 0, block 4, micro-batch i\n"
            "  forward stage 0, block 5, micro-batch i\n"
            "}\n");
  // A micro-batch meets each row in the loop over micro-batches.
  std::vector<int64_t> blocks;
  for (const MicroBatchTask& t : tasks_of_micro_batch(order)) {
    blocks.push_back(t.task.block->constant);
    EXPECT_EQ(t.loops.size(), 1U);
  }
  EXPECT_EQ(blocks, (std::vector<int64_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(to_string(row_order({{.first = BlockId(0), .rows = 2, .forward_loop = 2}}, {})),
            "for i in 2 {\n  forward stage 0, block i, micro-batch 0\n}\n");
}

TEST(Order, OfPhasesInStagesPipelinesGroups) {
  StepDependences step{.blocks = {{.name = "A", .has_gradient = false},
                                  {.name = "B", .has_gradient = true},
                                  {.name = "C", .has_gradient = true}},
                       .stages = {blocks({0, 1}), blocks({2})},
                       .counts = {.micro_batches = 6}};
  const PipelineOrder two = training_order(Schedule::kSequential, 2);
  EXPECT_EQ(to_string(grouped_order(two, 2, step)),
            "for i in 3 {\n"
            "  for j in 2 {\n"
            "    forward stage 0, block 0, micro-batch 2 * i + j\n"
            "  }\n"
            "  for j in 2 {\n"
            "    forward stage 0, block 1, micro-batch 2 * i + j\n"
            "  }\n"
            "  for j in 2 {\n"
            "    both stage 1, block 2, micro-batch 2 * i + j\n"
            "  }\n"
            "  for j in 2 {\n"
            "    backward stage 0, block 1, micro-batch 2 * i + j\n"
            "  }\n"
            "}\n"
            "update\n");
  step.counts.micro_batches = 2;
  EXPECT_EQ(to_string(grouped_order(two, 2, step)),
            "for i in 2 {\n"
            "  forward stage 0, block 0, micro-batch i\n"
            "}\n"
            "for i in 2 {\n"
            "  forward stage 0, block 1, micro-batch i\n"
            "}\n"
            "for i in 2 {\n"
            "  both stage 1, block 2, micro-batch i\n"
            "}\n"
            "update stage 1, block 2\n"
            "for i in 2 {\n"
            "  backward stage 0, block 1, micro-batch i\n"
            "}\n"
            "update stage 0, block 1\n");
  expect_refused({{"a group that does not divide", [&] { grouped_order(two, 4, step); },
                   "must divide the 2 micro-batches of an update, got 4"}});
}

TEST(Order, OfPhasesInLineHasATaskForEachMicroBatch) {
  EXPECT_EQ(to_string(phased_order({{.first = BlockId(0)}, {.first = BlockId(1)}},
                                   MicroBatchForm::kInLine, PhasedUpdates::kApart, false,
                                   {.micro_batches = 2, .has_norm = true})),
            "forward stage 0, block 0, micro-batch 0\n"
            "forward stage 0, block 0, micro-batch 1\n"
            "both stage 0, block 1, micro-batch 0\n"
            "both stage 0, block 1, micro-batch 1\n"
            "backward stage 0, block 0, micro-batch 0\n"
            "backward stage 0, block 0, micro-batch 1\n"
            "norm\n"
            "update stage 0, block 1\n"
            "update stage 0, block 0\n");
}

// Four blocks in a chain. Block 0 and 3 share weight 0; block 1 has a running variable.
StepDependences chain(int64_t micro_batches, const std::vector<std::vector<BlockId>>& stages) {
  StepDependences step{.stages = Ids<StageId, std::vector<BlockId>>(stages),
                       .counts = {.micro_batches = micro_batches}};
  for (int b = 0; b < 4; ++b) {
    BlockDependences block{.name = "B" + std::to_string(b), .has_gradient = true};
    if (b > 0) block.reads = blocks({b - 1});
    if (b < 3) block.reads_gradients = blocks({b + 1});
    block.weights = {b % 3u};
    block.ascends = b == 1;
    step.blocks.push_back(std::move(block));
  }
  return step;
}

TEST(Order, OfEachStrategyRespectsTheDependences) {
  for (const int64_t n : {1, 2, 3, 7, 8, 1000, 2147483647}) {
    for (const Schedule schedule :
         {Schedule::kGrouped, Schedule::kInterleaved, Schedule::kSequential}) {
      for (const int64_t updates : {1, 3}) {
        const OrderCounts counts{.micro_batches = n, .updates = updates, .has_norm = updates == 3};
        for (const auto& stages : std::vector<std::vector<std::vector<BlockId>>>{
                 {blocks({0}), blocks({1}), blocks({2}), blocks({3})},
                 {blocks({0, 1}), blocks({2, 3})},
                 {blocks({0, 1, 2, 3})}}) {
          StepDependences step = chain(n, stages);
          step.counts = counts;
          const PipelineOrder slots = training_order(schedule, static_cast<int>(stages.size()));
          check_order(staged_order(slots, counts), step);
          for (const int64_t group : {int64_t{1}, int64_t{2}, n}) {
            if (n % group == 0) check_order(grouped_order(slots, group, step), step);
          }
        }
      }
    }
    StepDependences phases = chain(n, {blocks({0, 1, 2, 3})});
    phases.has_seeds = true;
    for (const int64_t loop : {0, 2}) {
      const std::vector<PhasedBlocks> groups = {
          {.first = BlockId(0)},
          {.first = BlockId(1), .rows = 2, .forward_loop = loop, .backward_loop = loop},
          {.first = BlockId(3)}};
      for (const PhasedUpdates updates : {PhasedUpdates::kInBackward, PhasedUpdates::kApart}) {
        for (const int64_t d : {1, 4}) {
          phases.counts.updates = d;
          check_order(phased_order(groups, MicroBatchForm::kLoop, updates, true, phases.counts),
                      phases);
        }
      }
    }
  }
}

TEST(Order, RefusesABlockWhoseNumberHasMoreThan32Bits) {
  const std::string others =
      "forward stage 0, block 1, micro-batch 0\nforward stage 1, micro-batch 0\nupdate\n";
  expect_refused(
      {{"a block",
        [&] {
          check_order(parse_order("forward stage 0, block 4294967296, micro-batch 0\n" + others),
                      chain(1, {blocks({0, 1}), blocks({2, 3})}));
        },
        "'forward stage 0, block 4294967296, micro-batch 0' must name one of 4 blocks"}});
}

// Wrong orders, each with the tasks that conflict.
TEST(Order, NamesTheTasksThatConflict) {
  const auto check = [](std::string text, int64_t n) {
    return [text = std::move(text), n] {
      check_order(parse_order(text), chain(n, {blocks({0, 1}), blocks({2, 3})}));
    };
  };
  const std::string forward =
      "for i in 3 {\nforward stage 0, micro-batch i\nforward stage 1, micro-batch i\n";
  expect_refused({
      {"a value before it exists",
       check("for i in 3 {\nforward stage 1, micro-batch i\nforward stage 0, micro-batch i\n"
             "backward stage 1, micro-batch i\nbackward stage 0, micro-batch i\n}\nupdate\n",
             3),
       "'forward stage 1, micro-batch 0' must follow the forward task of block 'B1'"},
      {"a gradient before it exists",
       check(forward + "backward stage 0, micro-batch i\nbackward stage 1, micro-batch i\n}\n"
                       "update\n",
             3),
       "'backward stage 0, micro-batch 0' must follow the backward task of block 'B2'"},
      {"no backward task", check(forward + "backward stage 1, micro-batch i\n}\nupdate\n", 3),
       "block 'B0' must run backward for micro-batch 0"},
      {"a backward task that is missing once",
       check(forward + "}\nfor i in 2 {\nbackward stage 1, micro-batch i\n"
                       "backward stage 0, micro-batch i\n}\nbackward stage 1, micro-batch 2\n"
                       "update\n",
             3),
       "block 'B0' must run backward for micro-batch 2"},
      {"too few micro-batches",
       check(forward + "backward stage 1, micro-batch i\nbackward stage 0, micro-batch i\n}\n"
                       "update\n",
             4),
       "must run 4 blocks forward for 4 micro-batches, 16 tasks, got 12"},
      {"a micro-batch twice",
       check("for i in 2 {\nforward stage 0, micro-batch 0\nforward stage 1, micro-batch i\n"
             "backward stage 1, micro-batch i\nbackward stage 0, micro-batch i\n}\nupdate\n",
             2),
       "'forward stage 0, micro-batch 0' must use the iteration of each loop around it"},
      {"micro-batches of a running variable that descend",
       check("forward stage 0, micro-batch 1\nforward stage 0, micro-batch 0\n"
             "for i in 2 {\nforward stage 1, micro-batch i\nbackward stage 1, micro-batch i\n"
             "backward stage 0, micro-batch i\n}\nupdate\n",
             2),
       "'forward stage 0, micro-batch 1' must follow 'forward stage 0, micro-batch 0'"},
      {"micro-batches of an accumulator that descend",
       check("for i in 2 {\nforward stage 0, micro-batch i\nforward stage 1, micro-batch i\n}\n"
             "backward stage 1, micro-batch 1\nbackward stage 1, micro-batch 0\n"
             "backward stage 0, micro-batch 0\nbackward stage 0, micro-batch 1\nupdate\n",
             2),
       "'backward stage 1, micro-batch 1' must follow 'backward stage 1, micro-batch 0'"},
      {"an early update",
       check("for i in 2 {\nforward stage 0, micro-batch i\nforward stage 1, micro-batch i\n"
             "backward stage 1, micro-batch i\n}\nupdate\nfor i in 2 {\n"
             "backward stage 0, micro-batch i\n}\n",
             2),
       "'update' must follow 'backward stage 0, micro-batch 1'; block 'B0' reads a weight"},
      {"an update before the last forward task",
       check("for i in 2 {\nforward stage 0, micro-batch i\nforward stage 1, micro-batch i\n"
             "backward stage 1, micro-batch i\n}\nupdate stage 1, block 2\nfor i in 2 {\n"
             "backward stage 0, micro-batch i\n}\nupdate stage 0, block 0\n"
             "update stage 0, block 1\nforward stage 0, block 0, micro-batch 0\n",
             2),
       "must run 4 blocks forward for 2 micro-batches, 8 tasks, got 9"},
      {"no update",
       check(forward + "backward stage 1, micro-batch i\nbackward stage 0, micro-batch i\n}\n", 3),
       "a weight of block 'B0' must be updated"},
      {"two updates",
       check(forward + "backward stage 1, micro-batch i\nbackward stage 0, micro-batch i\n}\n"
                       "update\nupdate stage 0, block 1\n",
             3),
       "'update stage 0, block 1' must not update a weight that another update has updated"},
      {"a stage that does not exist", check("forward stage 2, micro-batch 0\n", 1),
       "must name one of 2 stages"},
      {"a block that does not exist",
       check("for i in 8 {\nforward stage 0, block i, micro-batch 0\n}\n", 2),
       "must be in at most 4 rows, got 8"},
  });
}

}  // namespace
}  // namespace sluice::train
