#include "sluice/compiler/passes/dead_code.h"

#include <gtest/gtest.h>

#include "sluice/compiler/test_bodies.h"

namespace sluice::compiler {
namespace {

TEST(DeadCode, RemovesWhatNothingReads) {
  TestProgram p(R"(
    body main entry
      param %0 f32(4)
      kernel Neg in %0 out %1 f32(4)
      kernel Neg in %1 out %2 f32(4)
      kernel Relu in %0 out %3 f32(4)
      results %3
    end)");
  EXPECT_EQ(remove_dead_code(p.program, p.context), 2);
  EXPECT_EQ(p.body().nodes.size(), 1U);
  EXPECT_EQ(name_of(p.body().nodes[NodeId(0)]), "Relu");
}

TEST(DeadCode, KeepsUpdatesAndTheMakersOfTheBytesThatTheyWrite) {
  const char* const text = R"(
    body main entry
      param %0 f32(4) last %3
      variable 0 %1 f32(4)
      variable 1 %2 f32(4)
      copy in %1 out %3 f32(4) tie 0 %0
      kernel AddLhsInplace in %1 %3 out %4 f32(4) tie 0 %1
      kernel Neg in %3 out %5 f32(4)
      copy in %3 out %6 f32(4) tie 0 %5
      results %6
      last 0 %4
    end)";
  TestProgram p(text);
  EXPECT_EQ(remove_dead_code(p.program, p.context), 0);
  p.expect(text);
}

TEST(DeadCode, KeepsEffectsAlsoOfCallees) {
  const char* const text = R"(
    body main entry
      param %0 f32(4)
      param %1 bool()
      kernel Neg in %0 out %2 f32(4)
      call 1 in %2
      branch 1 1 then 1 in %1 %2 %2
      transfer HostStore stream_out 1 io in %0
    end
    body f function
      param %0 f32(4)
      kernel PrintTensor prints in %0
    end)";
  TestProgram p(text);
  EXPECT_EQ(remove_dead_code(p.program, p.context), 0);
  p.expect(text);
}

// Only one of the two live calls reads result 1 of f. The other call gets a copy of f without it.
TEST(DeadCode, AFunctionReturnsWhatItsCallersRead) {
  const char* const f = R"(
    body f function
      param %0 f32(4)
      kernel Neg in %0 out %1 f32(4)
      kernel Relu in %0 out %2 f32(4)
      results %1 %2
    end)";
  TestProgram p(std::string(R"(
    body main entry
      param %0 f32(4)
      call 1 in %0 out %1 f32(4) %2 f32(4)
      call 1 in %1 out %3 f32(4) %4 f32(4)
      call 1 in %1 out %5 f32(4) %6 f32(4)
      results %3 %4
    end)") + f);
  EXPECT_EQ(remove_dead_code(p.program, p.context), 2);
  p.expect(std::string(R"(
    body main entry
      param %0 f32(4)
      call 1 in %0 out %1 f32(4) %- as f32(4)
      call 2 in %1 out %3 f32(4) %4 f32(4)
      results %3 %4
    end
    body f function
      param %0 f32(4)
      kernel Neg in %0 out %1 f32(4)
      results %1 %-
    end)") +
           f);
}

TEST(DeadCode, LoopsAndConditionalsKeepAllResults) {
  const char* const text = R"(
    body main entry
      param %0 bool()
      param %1 f32(4)
      loop trips 3 carried 2 1 in %1 %1 out %2 f32(4) %3 f32(4)
      branch 2 2 then 1 in %0 %2 %2 out %4 f32(4) %5 f32(4)
      results %4
    end
    body step loop_body
      param %0 f32(4)
      param %1 f32(4)
      kernel Neg in %1 out %2 f32(4)
      results %0 %2
    end
    body f function
      param %0 f32(4)
      kernel Neg in %0 out %1 f32(4)
      results %0 %1
    end)";
  TestProgram p(text);
  EXPECT_EQ(remove_dead_code(p.program, p.context), 0);
  p.expect(text);
}

}  // namespace
}  // namespace sluice::compiler
