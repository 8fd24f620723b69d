#include "sluice/compiler/lower/emit.h"

#include <gtest/gtest.h>

#include "sluice/compiler/lower/test_lowering.h"

namespace sluice::compiler {
namespace {

template <typename T>
const T& step(const exe::Function& f, size_t i) {
  return std::get<T>(f.steps[i].body);
}

TEST(Emit, ABodyBecomesAFunctionAndItsNodesSteps) {
  TestProgram p(R"(
    body main entry
      variable 0 %0 f32(4) name "w" 0
      variable 1 %1 f32(4) name "v" 0
      kernel Neg in %1 out %2 f32(4) name "n" 0 origin 5 where "line 1"
      view in %2 out %3 f32(2,2)
      kernel AddLhsInplace in %0 %3 as f32(4) out %4 f32(4) name "w" 1 tie 0 %0
      last 0 %4
    end)");
  const exe::Executable& e = lower(p);
  ASSERT_EQ(e.functions.size(), 1U);
  const exe::Function& f = e.functions[0];
  ASSERT_EQ(f.steps.size(), 2U) << "a view is no step";
  EXPECT_EQ(f.steps[0].origin, 5);
  EXPECT_EQ(f.steps[0].where, "line 1");
  const auto& update = step<exe::Kernel>(f, 1);
  EXPECT_EQ(update.key, "test.AddLhsInplace");
  ASSERT_EQ(update.operands.size(), 3U);
  EXPECT_EQ(update.operands[2].at, update.operands[0].at);
  EXPECT_EQ(update.operands[0].at.offset, e.variables[0].offset);
  EXPECT_EQ(update.operands[1].at.base, exe::Address::Base::kFrame);
  ASSERT_EQ(e.programs.size(), 1U);
  ASSERT_EQ(e.programs[0].finals.size(), 1U);
  EXPECT_EQ(e.programs[0].finals[0].variable, 0);
}

// %1 and %3 share bytes: %1 is read for the last time before %3 is written.
TEST(Emit, ValuesWhoseLivesDoNotMeetShareBytes) {
  TestProgram p(R"(
    body main entry
      variable 0 %0 f32(16)
      kernel Neg in %0 out %1 f32(16)
      kernel MatMul in %1 as f32(4,4) %1 as f32(4,4) out %2 f32(4,4)
      kernel MatMul in %2 %2 out %3 f32(4,4)
      transfer - stream_out 1 compute in %3
    end)");
  EXPECT_EQ(lower(p).functions[0].frame_bytes, 2 * 64);
}

TEST(Emit, AFunctionOfTwoCallsExistsOnce) {
  TestProgram p(R"(
    body main entry
      variable 0 %0 f32(4)
      call 1 in %0 out %1 f32(4)
      call 1 in %1 out %2 f32(4)
      transfer - stream_out 1 compute in %2
    end
    body f function graph 3
      param %0 f32(4) x
      kernel Softmax in %0 out %1 f32(4)
      kernel Softmax in %1 out %2 f32(4)
      results %2
    end)");
  const exe::Executable& e = lower(p);
  ASSERT_EQ(e.functions.size(), 2U);
  EXPECT_EQ(e.functions[0].memo, "graph 3 device 0 used 1");
  ASSERT_EQ(e.functions[0].params.size(), 2U) << "the input and the result";
  EXPECT_EQ(e.functions[0].params[1].access, exe::Access::kWrite);
  EXPECT_EQ(step<exe::Call>(e.functions[1], 0).function, 0);
  EXPECT_EQ(step<exe::Call>(e.functions[1], 1).function, 0);
  EXPECT_GE(e.functions[1].frame_bytes, e.functions[0].frame_bytes + 64);
}

// The caller passes the number of the next stream entry as an index argument.
TEST(Emit, StreamsAreNumberedThroughLoops) {
  TestProgram p(R"(
    body main entry
      transfer - stream_in 0 compute out %0 f32(4)
      loop trips 3 carried 0 1
      transfer - stream_in 0 compute out %1 f32(4)
    end
    body step loop_body
      transfer - stream_in 0 compute out %0 f32(4)
      transfer - stream_in 0 compute out %1 f32(4)
    end)");
  const exe::Executable& e = lower(p);
  const exe::Function& main = e.functions[1];
  EXPECT_EQ(to_string(step<exe::Issue>(main, 0).entry), "0");
  EXPECT_EQ(to_string(step<exe::Loop>(main, 1).body.index_args[0]), "(1+(it*2))");
  EXPECT_EQ(to_string(step<exe::Issue>(main, 2).entry), "7");
  EXPECT_EQ(to_string(step<exe::Issue>(e.functions[0], 1).entry), "(p0+1)");
  EXPECT_EQ(e.programs[0].streams[0].entries, 8);
}

}  // namespace
}  // namespace sluice::compiler
