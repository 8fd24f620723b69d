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
  const exe::Function& f = e.functions[exe::FunctionId(0)];
  ASSERT_EQ(f.steps.size(), 2U) << "a view is no step";
  EXPECT_EQ(f.steps[0].origin, 5);
  EXPECT_EQ(f.steps[0].where, "line 1");
  const auto& update = step<exe::Kernel>(f, 1);
  EXPECT_EQ(update.key, "test.AddLhsInplace");
  ASSERT_EQ(update.operands.size(), 3U);
  EXPECT_EQ(update.operands[2].at, update.operands[0].at);
  EXPECT_EQ(update.operands[0].at.offset, e.variables[exe::VariableId(0)].offset);
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
  EXPECT_EQ(lower(p).functions[exe::FunctionId(0)].frame_bytes, 2 * 64);
}

// The second kernel overwrites its operand, so both values share a buffer.
TEST(Emit, ABufferIsNamedByTheFirstValueThatItHolds) {
  TestProgram p(R"(
    body main entry
      variable 0 %0 f32(16)
      kernel Neg in %0 out %1 f32(16) name "first" 0
      kernel Neg in %1 out %2 f32(16) name "second" 0
      transfer - stream_out 1 compute in %2
    end)");
  const exe::Executable& e = lower(p);
  ASSERT_EQ(e.functions[exe::FunctionId(0)].buffers.size(), 1U);
  const exe::ValueId held = e.origins.in_buffer(exe::FunctionId(0), 0);
  ASSERT_NE(held, exe::kNoValue);
  EXPECT_EQ(e.values[held].tensor, "first");
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
  EXPECT_EQ(e.functions[exe::FunctionId(0)].memo, "graph 3 device 0 used 1");
  ASSERT_EQ(e.functions[exe::FunctionId(0)].params.size(), 2U) << "the input and the result";
  EXPECT_EQ(e.functions[exe::FunctionId(0)].params[exe::ParamId(1)].access, exe::Access::kWrite);
  EXPECT_EQ(step<exe::Call>(e.functions[exe::FunctionId(1)], 0).function, 0);
  EXPECT_EQ(step<exe::Call>(e.functions[exe::FunctionId(1)], 1).function, 0);
  EXPECT_GE(e.functions[exe::FunctionId(1)].frame_bytes,
            e.functions[exe::FunctionId(0)].frame_bytes + 64);
}

// In a ring of 4 slots, each value moves on by one slot. No step copies a value, neither in the
// loop nor before it.
TEST(Emit, ARotationIsARingAndANameForEachValueAfterIt) {
  TestProgram p(R"(
    body main entry
      transfer - stream_in 0 compute out %0 f32(16)
      transfer - stream_in 0 compute out %1 f32(16)
      transfer - stream_in 0 compute out %2 f32(16)
      loop trips 6 carried 3 rotates 0:2 rotates 1:0 1 index it in %0 %1 %2 out %3 f32(16) %4 f32(16) %5 f32(16)
      transfer - stream_out 1 compute in %5
      transfer - stream_out 1 compute in %3
      transfer - stream_out 1 compute in %4
    end
    body step loop_body
      index_param ?
      param %0 f32(16)
      param %1 f32(16)
      param %2 f32(16)
      kernel Add in %0 %1 out %3 f32(16)
      results %- %- %3
    end)");
  const exe::Executable& e = lower(p);
  const exe::Function& body = e.functions[exe::FunctionId(0)];
  ASSERT_EQ(body.params.size(), 4U) << "the three values and the new one";
  EXPECT_EQ(body.steps.size(), 1U);
  const exe::Function& main = e.functions[exe::FunctionId(1)];
  const auto& loop = step<exe::Loop>(main, 3);
  ASSERT_EQ(loop.body.args.size(), 4U);
  const int64_t ring = loop.body.args[exe::ParamId(0)].at.offset;
  for (const auto& [arg, slot] :
       {std::pair<size_t, const char*>{0, "(it+1)"}, {1, "it"}, {2, "(it+2)"}, {3, "(it+3)"}}) {
    const exe::Address& at = loop.body.args[exe::ParamId(arg)].at;
    EXPECT_EQ(at.offset, ring);
    EXPECT_EQ(at.depth, 4);
    EXPECT_EQ(at.stride, 64);
    EXPECT_EQ(to_string(at.slot), slot) << arg;
  }
  ASSERT_EQ(loop.carried.size(), 3U);
  EXPECT_EQ(loop.carried[0], (exe::Carry{exe::ParamId(2), exe::ParamId(3)}));
  // From the newest value to the oldest. After 6 iterations they are in slots 0, 3 and 2.
  for (const auto& [carry, in, out, slot] :
       {std::tuple<size_t, int, int, int64_t>{1, 0, 2, 3}, {2, 1, 0, 2}}) {
    EXPECT_EQ(loop.carried[carry].in, in);
    EXPECT_EQ(loop.carried[carry].out, out);
    const exe::Operand& read = step<exe::Issue>(main, 4 + carry).memory;
    EXPECT_EQ(read.value, loop.carried[carry].after);
    EXPECT_EQ(read.at.offset, ring + slot * 64);
  }
  EXPECT_EQ(step<exe::Issue>(main, 4).memory.value, loop.body.args[exe::ParamId(3)].value);
  EXPECT_EQ(step<exe::Issue>(main, 4).memory.at.offset, ring);
}

// The new value overwrites the oldest one, so the ring has a slot for each value.
TEST(Emit, ANewValueUpdatesTheArgumentOfTheOldestOne) {
  TestProgram p(R"(
    body main entry
      transfer - stream_in 0 compute out %0 f32(16)
      transfer - stream_in 0 compute out %1 f32(16)
      loop trips 6 carried 2 rotates 0:1 rotates 1:0 1 index it in %0 %1 out %2 f32(16) %3 f32(16)
      transfer - stream_out 1 compute in %2
      transfer - stream_out 1 compute in %3
    end
    body step loop_body
      index_param ?
      param %0 f32(16)
      param %1 f32(16) last %2
      kernel Neg in %0 out %2 f32(16) tie 0 %1
      results %- %-
    end)");
  const exe::Executable& e = lower(p);
  ASSERT_EQ(e.functions[exe::FunctionId(0)].params.size(), 2U);
  EXPECT_EQ(e.functions[exe::FunctionId(0)].params[exe::ParamId(1)].access, exe::Access::kUpdate);
  const exe::Function& main = e.functions[exe::FunctionId(1)];
  const auto& loop = step<exe::Loop>(main, 2);
  const exe::Operand& oldest = loop.body.args[exe::ParamId(1)];
  EXPECT_EQ(loop.body.args[exe::ParamId(0)].access, exe::Access::kRead);
  EXPECT_EQ(oldest.access, exe::Access::kUpdate);
  EXPECT_EQ(oldest.at.depth, 2);
  EXPECT_EQ(to_string(oldest.at.slot), "it");
  const exe::Operand& newest = step<exe::Issue>(main, 3).memory;
  const exe::Operand& second = step<exe::Issue>(main, 4).memory;
  EXPECT_EQ(newest.value, oldest.made);
  EXPECT_EQ(loop.carried,
            (std::vector<exe::Carry>{{exe::ParamId(0), exe::ParamId(1), exe::kNoValue},
                                     {exe::ParamId(1), exe::ParamId(0), second.value}}));
  EXPECT_EQ(newest.at.offset - oldest.at.offset, 64) << "slot 1 + 6 mod 2";
  EXPECT_EQ(second.at.offset, oldest.at.offset);
}

// One value is updated in place: its ring would have one slot.
TEST(Emit, AValueThatIsOverwrittenInEachIterationIsNoRing) {
  TestProgram p(R"(
    body main entry
      transfer - stream_in 0 compute out %0 f32(16)
      loop trips 5 carried 1 rotates 0:0 1 index it in %0 out %1 f32(16)
      transfer - stream_out 1 compute in %1
    end
    body step loop_body
      index_param ?
      param %0 f32(16) last %1
      kernel Init out %1 f32(16) tie 0 %0
      results %-
    end)");
  const exe::Executable& e = lower(p);
  const exe::Function& main = e.functions[exe::FunctionId(1)];
  const auto& loop = step<exe::Loop>(main, 1);
  EXPECT_EQ(loop.carried, std::vector<exe::Carry>(1));
  EXPECT_EQ(loop.body.args[exe::ParamId(0)].at.depth, 0);
  EXPECT_EQ(step<exe::Issue>(main, 2).memory.at, loop.body.args[exe::ParamId(0)].at);
  EXPECT_EQ(step<exe::Issue>(main, 2).memory.value, loop.body.args[exe::ParamId(0)].made);
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
  const exe::Function& main = e.functions[exe::FunctionId(1)];
  EXPECT_EQ(to_string(step<exe::Issue>(main, 0).entry), "0");
  EXPECT_EQ(to_string(step<exe::Loop>(main, 1).body.index_args[0]), "(1+(it*2))");
  EXPECT_EQ(to_string(step<exe::Issue>(main, 2).entry), "7");
  EXPECT_EQ(to_string(step<exe::Issue>(e.functions[exe::FunctionId(0)], 1).entry), "(p0+1)");
  EXPECT_EQ(e.programs[0].streams[0].entries, 8);
}

}  // namespace
}  // namespace sluice::compiler
