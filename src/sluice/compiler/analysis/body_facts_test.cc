#include "sluice/compiler/analysis/body_facts.h"

#include <gtest/gtest.h>

#include "sluice/base/test_refusals.h"
#include "sluice/compiler/test_bodies.h"

namespace sluice::compiler {
namespace {

using Of = Sequence::Of;

TEST(BodyFacts, CountsTheUsesOfSequencesThroughCallsAndLoops) {
  const TestProgram p(R"(
    body main entry
      loop trips 5 carried 0 1
      call 1
      transfer - stream_in 0 io out %0 f32()
    end
    body f function
      transfer - stream_in 0 io out %0 f32()
      transfer - stream_in 0 io out %1 f32()
      collective ReplicatedAllReduce group 2 in %0 out %2 f32()
      receive 0 message 0 out %3 f32()
    end)");
  const FactTable facts(p.program);
  ASSERT_EQ(facts[BodyId(0)].sequences.size(), 3U);
  EXPECT_EQ(facts[BodyId(0)].sequences[0].sequence, (Sequence{Of::kStream, 0}));
  EXPECT_EQ(facts[BodyId(0)].sequences[0].count, 13);
  EXPECT_EQ(facts[BodyId(0)].sequences[1].sequence, (Sequence{Of::kGroup, 2}));
  EXPECT_EQ(facts[BodyId(0)].sequences[1].count, 6);
  EXPECT_EQ(facts[BodyId(0)].sequences[2].sequence, (Sequence{Of::kChannel, 0}));
  EXPECT_TRUE(facts[BodyId(0)].has_effects);
}

TEST(BodyFacts, KnowsTheBuffersThatABodyAndItsCalleesUse) {
  const TestProgram p(R"(
    body main entry
      param %0 f32()
      transfer - remote_store 2 io at 0 in %0
      branch 1 2 then 0 in %0
    end
    body f function
      transfer - remote_load 1 io at 0 out %0 f32()
    end
    body g function
    end)");
  const FactTable facts(p.program);
  EXPECT_EQ(facts[BodyId(0)].stores_to, std::set<int32_t>{2});
  EXPECT_EQ(facts[BodyId(0)].loads_from, std::set<int32_t>{1});
  EXPECT_TRUE(has_effect(p.body(0).nodes[NodeId(1)], facts));
  EXPECT_FALSE(facts[BodyId(2)].has_effects);
}

TEST(BodyFacts, KernelsHaveAnEffectIfTheyPrint) {
  const TestProgram p(R"(
    body main entry
      param %0 f32()
      call 1 in %0
      call 2 in %0
    end
    body f function
      param %0 f32()
      kernel PrintTensor prints in %0
    end
    body g function
      param %0 f32()
      kernel Neg in %0 out %1 f32()
    end)");
  const FactTable facts(p.program);
  EXPECT_TRUE(has_effect(p.body(0).nodes[NodeId(0)], facts));
  EXPECT_FALSE(has_effect(p.body(0).nodes[NodeId(1)], facts));
}

TEST(BodyFacts, RefusesConditionalsThatCommunicateAndTooManyEntries) {
  const std::string body = R"(
    body f function
      send 0 message 0 in %0
    end)";
  const auto program = [&](const std::string& node) {
    return [=] {
      const TestProgram p("body main entry\nparam %0 bool()\n" + node + "\nend" + body);
      FactTable{p.program};
    };
  };
  expect_refused({
      {"branch", program("branch 1 1 then 0 in %0"),
       "its branch f uses a message between devices; a conditional may not communicate"},
      {"many", program("loop trips 9000000000000000000 carried 0 1"),
       "graph main: must use a message between devices at most"},
  });
}

}  // namespace
}  // namespace sluice::compiler
