#include "sluice/compiler/passes/inline_calls.h"

#include <gtest/gtest.h>

#include "sluice/compiler/test_bodies.h"

namespace sluice::compiler {
namespace {

TEST(InlineCalls, ACalleeOfOneCallStandsInItsPlace) {
  TestProgram p(R"(
    body main entry
      param %0 f32(4)
      kernel Neg in %0 out %1 f32(4)
      call 1 in %1 out %2 f32(4)
      kernel Neg in %2 out %3 f32(4)
      results %3
    end
    body f function
      param %0 f32(4)
      kernel PrintTensor prints in %0
      kernel Relu in %0 out %1 f32(4)
      results %1
    end)");
  EXPECT_EQ(inline_calls(p.program, p.context), 1);
  p.expect(R"(
    body main entry
      param %0 f32(4)
      kernel Neg in %0 out %1 f32(4)
      kernel PrintTensor prints in %1
      kernel Relu in %1 out %4 f32(4)
      kernel Neg in %4 out %3 f32(4)
      results %3
    end)");
}

// Function f returns an input once and a computed value twice. Each result needs a separate value.
TEST(InlineCalls, ResultsThatAreNotValuesOfTheirOwnBecomeViews) {
  TestProgram p(R"(
    body main entry
      param %0 f32(4)
      call 1 in %0 out %1 f32(4) %2 f32(4) %3 f32(4)
      kernel AddLhsInplace in %1 %2 out %4 f32(4) tie 0 %1
      results %3 %4
    end
    body f function
      param %0 f32(4)
      kernel Neg in %0 out %1 f32(4)
      results %0 %1 %1
    end)");
  inline_calls(p.program, p.context);
  p.expect(R"(
    body main entry
      param %0 f32(4)
      kernel Neg in %0 out %5 f32(4)
      view in %0 out %1 f32(4)
      view in %5 out %3 f32(4)
      kernel AddLhsInplace in %1 %5 out %4 f32(4) tie 0 %1
      results %5 %4
    end)");
}

TEST(InlineCalls, ABodyReturnsAParameterWithoutAView) {
  TestProgram p(R"(
    body main entry
      param %0 f32(4)
      call 1 in %0 out %1 f32(4) %2 f32(4) %3 f32(4)
      results %1 %2 %3
    end
    body f function
      param %0 f32(4)
      kernel Neg in %0 out %1 f32(4)
      results %0 %1 %1
    end)");
  inline_calls(p.program, p.context);
  p.expect(R"(
    body main entry
      param %0 f32(4)
      kernel Neg in %0 out %4 f32(4)
      view in %0 out %1 f32(4)
      view in %4 out %3 f32(4)
      results %0 %4 %4
    end)");
}

// Function f returns its second input. The caller returns this parameter itself, but only if
// nothing overwrites it.
TEST(InlineCalls, AParameterThatIsReturnedUnchangedNeedsNoView) {
  const auto inlined = [](const std::string& lines) {
    TestProgram p(R"(
    body main entry
      param %0 f32(4)
)" + lines + R"(
    end
    body f function
      param %0 f32(4)
      param %1 f32(4)
      kernel Neg in %0 out %2 f32(4)
      results %1 %2
    end)");
    EXPECT_EQ(inline_calls(p.program, p.context), 1);
    verify(p.program, "inline");
    return p.body().results;
  };
  EXPECT_EQ(inlined("param %1 f32(4)\ncall 1 in %0 %1 out %2 f32(4) %3 f32(4)\nresults %2 %3"),
            ids<ValueIndex>({1, 4}));
  EXPECT_EQ(inlined("param %1 f32(4) last %4\ncall 1 in %0 %1 out %2 f32(4) %3 f32(4)\n"
                    "kernel AddLhsInplace in %1 %0 out %4 f32(4) tie 0 %1\nresults %2 %3"),
            ids<ValueIndex>({2, 5}));
  EXPECT_EQ(inlined("param %1 f32(4)\ncall 1 in %0 %1 out %2 f32(4) %3 f32(4)\n"
                    "kernel AddLhsInplace in %2 %0 out %4 f32(4) tie 0 %2\nresults %4 %3"),
            ids<ValueIndex>({4, 5}));
}

TEST(InlineCalls, UpdatesReachTheVariableOfTheCaller) {
  TestProgram p(R"(
    body main entry
      param %0 f32(4)
      variable 0 %1 f32(4)
      call 1 updated 1 in %0 %1 out %2 f32(4) %3 f32(4) tie 1 %1
      last 0 %3
      results %2
    end
    body f function
      param %0 f32(4)
      param %1 f32(4) last %2
      kernel AddLhsInplace in %1 %0 out %2 f32(4) tie 0 %1
      results %2
    end)");
  inline_calls(p.program, p.context);
  p.expect(R"(
    body main entry
      param %0 f32(4)
      variable 0 %1 f32(4)
      kernel AddLhsInplace in %1 %0 out %4 f32(4) tie 0 %1
      view in %4 out %2 f32(4)
      results %4
      last 0 %4
    end)");
}

std::string two_calls(const std::string& nodes) {
  return R"(
    body main entry
      param %0 f32(4)
      call 1 in %0
      call 1 in %0
    end
    body f function
      param %0 f32(4)
)" + nodes +
         "\nend";
}

int64_t inlined(const std::string& nodes) {
  TestProgram p(two_calls(nodes));
  const int64_t calls = inline_calls(p.program, p.context);
  verify(p.program, "inline");
  return calls;
}

TEST(InlineCalls, ACalleeOfTwoCallsMustBeSmall) {
  const auto kernels = [](int count) {
    std::string nodes;
    for (int k = 1; k <= count; ++k) nodes += fmt::format("kernel Neg in %0 out %{} f32(4)\n", k);
    return nodes;
  };
  EXPECT_EQ(inlined(kernels(8)), 2);
  EXPECT_EQ(inlined(kernels(9)), 0);
  EXPECT_EQ(inlined("kernel PrintTensor prints in %0"), 0);
  EXPECT_EQ(inlined("copy in %0 out %1 f32(4)"), 0);
}

TEST(InlineCalls, ACalleeOfOverlappedTransfersIsMadePartOfEachCaller) {
  EXPECT_EQ(inlined("transfer - remote_store 1 io_overlapped at 0 in %0"), 2);
  EXPECT_EQ(inlined("transfer - remote_store 1 io at 0 in %0"), 0);
  EXPECT_EQ(inlined("kernel Neg in %0 out %1 f32(4)\n"
                    "transfer - remote_store 1 io_overlapped at 0 in %1"),
            0);
}

TEST(InlineCalls, LoopsAndConditionalsStay) {
  const char* const text = R"(
    body main entry
      param %0 bool()
      loop trips 1 carried 1 1 in %0 out %1 bool()
      branch 1 1 then 1 in %1 %1 %1 out %2 bool()
      results %2
    end
    body f function
      param %0 bool()
      results %0
    end)";
  TestProgram p(text);
  EXPECT_EQ(inline_calls(p.program, p.context), 0);
  p.expect(text);
}

TEST(InlineCalls, CalleesAreInlinedBeforeTheirCallers) {
  TestProgram p(R"(
    body main entry
      param %0 f32(4)
      call 1 in %0 out %1 f32(4)
      results %1
    end
    body f function
      param %0 f32(4)
      call 2 in %0 out %1 f32(4)
      results %1
    end
    body g function
      param %0 f32(4)
      kernel Neg in %0 out %1 f32(4)
      results %1
    end)");
  EXPECT_EQ(inline_calls(p.program, p.context), 2);
  EXPECT_EQ(callees_first(p.program), ids<BodyId>({0}));
  ASSERT_EQ(p.body().nodes.size(), 1U);
  EXPECT_EQ(p.body().results[0], p.body().nodes[NodeId(0)].outputs[0]);
}

}  // namespace
}  // namespace sluice::compiler
