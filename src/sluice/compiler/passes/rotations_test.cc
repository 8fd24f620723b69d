#include "sluice/compiler/passes/rotations.h"

#include <gtest/gtest.h>

#include "sluice/compiler/lower/kernels.h"
#include "sluice/compiler/test_bodies.h"

namespace sluice::compiler {
namespace {

constexpr const char* kThree = "param %0 f32(4)\nparam %1 f32(4)\nparam %2 f32(4)\n";

// A program whose loop carries three values. `body` has the lines of the loop's body after its
// parameters `params`.
TestProgram three(const std::string& body, const std::string& loop = "",
                  const std::string& params = kThree) {
  return TestProgram(R"(
    body main entry
      param %0 f32(4)
      param %1 f32(4)
      param %2 f32(4)
      loop trips 7 carried 3 )" +
                     loop + R"( 1 index it in %0 %1 %2 out %3 f32(4) %4 f32(4) %5 f32(4)
      results %3 %4 %5
    end
    body step loop_body
      index_param ?
)" + params + body + "\nend");
}

// Runs the pass. `coincide`: whether an elementwise kernel may write over its operands.
int64_t run(TestProgram& p, bool coincide = false) {
  if (!coincide) {
    p.target->kernel = [](const OpView& op) { return KernelChoice{.key = op.def().type}; };
  }
  for (const BodyId id : callees_first(p.program))
    choose_kernels(p.body(id), *p.target, p.program.lowered[id]);
  const int64_t count = find_rotations(p.program, p.context);
  for (const BodyId id : callees_first(p.program))
    EXPECT_EQ(p.program.lowered[id].choices.size(), p.body(id).nodes.size());
  return count;
}

// Expects the pass to make the second program of the first one.
void expect_rotations(TestProgram before, const TestProgram& after) {
  run(before);
  before.expect(after.text());
}

TEST(Rotations, AResultThatIsAnotherCarriedValueIsNotReturned) {
  const std::string neg = "kernel Neg in %2 out %3 f32(4)\n";
  TestProgram p = three(neg + "results %3 %0 %1");
  EXPECT_EQ(run(p), 2);
  p.expect(three(neg + "results %3 %- %-", "rotates 1:0 rotates 2:1").text());
  expect_rotations(three(neg + "results %1 %3 %0"),
                   three(neg + "results %- %3 %-", "rotates 0:1 rotates 2:0"));
}

TEST(Rotations, ValuesMayExchangePlacesOrStay) {
  expect_rotations(three("results %1 %2 %0"),
                   three("results %- %- %-", "rotates 0:1 rotates 1:2 rotates 2:0"));
  const std::string neg = "kernel Neg in %2 out %3 f32(4)\n";
  expect_rotations(three(neg + "results %1 %0 %3"),
                   three(neg + "results %- %- %3", "rotates 0:1 rotates 1:0"));
  const std::string add = "kernel Add in %0 %2 out %3 f32(4)\n";
  expect_rotations(three(add + "results %3 %1 %3"), three(add + "results %3 %- %3", "rotates 1:1"));
}

TEST(Rotations, AComputedValueIsReturned) {
  const char* const body =
      "kernel Add in %0 %1 out %3 f32(4)\nkernel Add in %1 %2 out %4 f32(4)\nresults %3 %4 %3";
  TestProgram p = three(body);
  EXPECT_EQ(run(p), 0);
  p.expect(three(body).text());
}

// The value of another shape would need another name in the plan.
TEST(Rotations, BothHaveOneShape) {
  TestProgram p(R"(
    body main entry
      param %0 f32(4)
      param %1 f32(2,2)
      loop trips 2 carried 2 1 index it in %0 %1 out %2 f32(4) %3 f32(2,2)
      results %2 %3
    end
    body step loop_body
      index_param ?
      param %0 f32(4)
      param %1 f32(2,2)
      kernel Add in %0 %1 as f32(4) out %2 f32(4)
      results %2 %0
    end)");
  EXPECT_EQ(run(p), 0);
}

// No node reads the oldest value after the new one is made.
TEST(Rotations, ANewValueOverwritesTheOldestOne) {
  const std::string read = "kernel PrintTensor prints in %2\n";
  const std::string last = "param %0 f32(4)\nparam %1 f32(4)\nparam %2 f32(4) last %3\n";
  const std::string circle = "rotates 0:2 rotates 1:0 rotates 2:1";
  const auto expect = [&](const std::string& maker, const std::string& more,
                          const std::string& params) {
    TestProgram p = three(read + maker + more + "\nresults %3 %0 %1");
    EXPECT_EQ(run(p), 3);
    p.expect(
        three(read + maker + " tie 0 %2" + more + "\nresults %- %- %-", circle, params).text());
  };
  expect("kernel Add in %0 %1 out %3 f32(4)", "", last);
  expect("kernel Add in %0 %1 out %3 f32(4)", "\nkernel PrintTensor prints in %0", last);
  expect("transfer - stream_in 0 compute out %3 f32(4)", "", last);
  expect("kernel Add in %0 %1 out %4 f32(4)", "\nview in %4 out %3 f32(4)", last);
}

// The kernel that makes the new value reads the oldest one, itself or in a view.
TEST(Rotations, AKernelMayWriteOverTheOldestOneThatItReads) {
  const std::string add = "kernel Add in %0 %2 out %3 f32(4)";
  const auto slots = [](const std::string& body, bool coincide) {
    TestProgram p = three(body + "\nresults %3 %0 %1");
    run(p, coincide);
    verify(p.program, "rotations");
    return rotations_of(*p.body(0).nodes[NodeId(0)].as<Node::Loop>())[0].slots;
  };
  EXPECT_EQ(slots(add, false), 4);
  EXPECT_EQ(slots(add, true), 3);
  EXPECT_EQ(slots("view in %2 out %4 f32(4)\nkernel Add in %2 %4 out %3 f32(4)", true), 4);
  EXPECT_EQ(slots("kernel MatMul in %0 as f32(2,2) %2 as f32(2,2) out %3 f32(4) as f32(2,2)", true),
            4);
}

TEST(Rotations, ANewValueIsReturnedIfTheOldestOneIsReadLater) {
  const std::string add = "kernel Add in %0 %1 out %3 f32(4)\n";
  const auto expect = [&](const std::string& before, const std::string& after) {
    expect_rotations(three(before + add + after + "results %3 %0 %1"),
                     three(before + add + after + "results %3 %- %-", "rotates 1:0 rotates 2:1"));
  };
  expect("", "kernel PrintTensor prints in %2\n");
  expect("view in %2 out %4 f32(4)\n", "kernel PrintTensor prints in %4\n");
  expect("transfer - stream_out 1 io queue 1 token 0 in %2\n", "wait - queue 1 token 0 in %2\n");
}

// The bytes of a constant and of a loop's result cannot be chosen.
TEST(Rotations, ANewValueThatHasBytesIsCopiedOverTheOldestOne) {
  const std::string inner = R"(
      results %3 %0 %1
    end
    body inner loop_body number 2
      index_param ?
      param %0 f32(4)
      kernel Add in %0 %0 out %1 f32(4)
      results %1)";
  const auto expect = [&](const std::string& value, const std::string& rest) {
    std::string copied = rest;
    const size_t at = copied.find("results %3 %0 %1");
    copied.replace(at, 16,
                   "copy in %3 out %4 f32(4) name \"'result\" 0 tie 0 %2 where \"result of "
                   "step\"\nresults %- %- %-");
    expect_rotations(three(value + rest),
                     three(value + copied, "rotates 0:2 rotates 1:0 rotates 2:1",
                           "param %0 f32(4)\nparam %1 f32(4)\nparam %2 f32(4) last %4\n"));
  };
  expect("constant 0 %3 f32(4)\n", "kernel PrintTensor prints in %2\nresults %3 %0 %1");
  expect("loop trips 2 carried 1 2 index it in %2 out %3 f32(4)", inner);
}

// A result that is not carried is copied at the end of each iteration.
TEST(Rotations, AValueThatIsReturnedIsNotOverwritten) {
  TestProgram p(R"(
    body main entry
      param %0 f32(4)
      loop trips 2 carried 1 1 index it in %0 out %1 f32(4) %2 f32(4)
      results %1 %2
    end
    body step loop_body
      index_param ?
      param %0 f32(4)
      kernel Init out %1 f32(4)
      results %1 %0
    end)");
  EXPECT_EQ(run(p), 0);
}

// A collective that had a tie would update its input.
TEST(Rotations, ACollectiveDoesNotOverwriteTheOldestOne) {
  expect_rotations(
      three("collective ReplicatedAllReduce group 0 in %0 out %3 f32(4)\nresults %3 %0 %1"),
      three("collective ReplicatedAllReduce group 0 in %0 out %3 f32(4)\nresults %3 %- %-",
            "rotates 1:0 rotates 2:1"));
}

TEST(Rotations, AllLoopsOfABodyRotate) {
  TestProgram p(R"(
    body main entry
      param %0 f32(4)
      param %1 f32(4)
      loop trips 2 carried 2 1 index it in %0 %1 out %2 f32(4) %3 f32(4)
      loop trips 5 carried 2 1 index it in %3 %2 out %4 f32(4) %5 f32(4)
      results %4 %5
    end
    body step loop_body
      index_param ?
      param %0 f32(4)
      param %1 f32(4)
      kernel Add in %0 %1 out %2 f32(4)
      results %2 %0
    end)");
  EXPECT_EQ(run(p), 1);
  for (const Node& node : p.body().nodes)
    EXPECT_EQ(node.as<Node::Loop>()->rotates, (std::vector<int32_t>{-1, 0}));
}

TEST(Rotations, ARotationIsListedFromItsNewestValue) {
  Node::Loop loop;
  loop.carried = 6;
  loop.rotates = {4, -1, 1, 5, 2, 3};
  const std::vector<Rotation> found = rotations_of(loop);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].carried, (std::vector<int32_t>{1, 2, 4, 0}));
  EXPECT_EQ(found[0].slots, 5);
  EXPECT_EQ(found[1].carried, (std::vector<int32_t>{3, 5}));
  EXPECT_EQ(found[1].slots, 2) << "no result is made beside the values";
  loop.rotates = {};
  EXPECT_EQ(rotations_of(loop).size(), 6U);
}

// In each iteration, a value has the bytes that the value before it had.
TEST(Rotations, SlotsMoveByOne) {
  const Rotation r{{3, 1, 0}, 4};
  for (int64_t i = 0; i < 9; ++i) {
    EXPECT_EQ(r.after(r.first_slot(0), i + 1), r.after(r.result_slot(), i));
    for (size_t v = 1; v < 3; ++v)
      EXPECT_EQ(r.after(r.first_slot(v), i + 1), r.after(r.first_slot(v - 1), i));
  }
}

}  // namespace
}  // namespace sluice::compiler
