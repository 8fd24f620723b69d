#include "sluice/compiler/passes/project.h"

#include <gtest/gtest.h>

#include "sluice/base/test_refusals.h"
#include "sluice/compiler/test_bodies.h"

namespace sluice::compiler {
namespace {

class Project : public testing::Test {
 protected:
  int64_t run(const std::string& text) {
    program_ = std::make_unique<TestProgram>(text, std::vector<int32_t>{}, 2);
    const int64_t messages = project(program_->program, program_->context);
    verify(program_->program, "project");
    return messages;
  }
  // Expects these bodies of an entry, in the order of their devices.
  void expect(const std::vector<std::string>& parts, size_t entry = 0) const {
    const std::vector<BodyId>& bodies = program_->program.entries[entry].bodies;
    ASSERT_EQ(bodies.size(), parts.size());
    for (size_t i = 0; i < parts.size(); ++i)
      EXPECT_EQ(to_text(program_->program.body(bodies[i])), to_text(parse_body(parts[i])));
  }
  const ProgramChannel& channel(int32_t i) const {
    return program_->program.channels[exe::ChannelId(i)];
  }
  std::unique_ptr<TestProgram> program_;
};

TEST_F(Project, ABodyOfOneDeviceStays) {
  const char* const text = R"(
    body main entry
      param %0 f32(4)
      kernel Neg in %0 out %1 f32(4) device 1
      results %1
    end)";
  EXPECT_EQ(run(text), 0);
  EXPECT_EQ(program_->body().device, 1);
  EXPECT_EQ(program_->program.entries[0].bodies, ids<BodyId>({0}));
}

TEST_F(Project, AValueIsSentWhereItIsMadeAndReceivedWhereItIsRead) {
  EXPECT_EQ(run(R"(
    body main entry
      param %0 f32(4)
      kernel Neg in %0 out %1 f32(4)
      kernel Abs in %1 out %2 f32(4)
      kernel Relu in %1 out %3 f32(4) device 1
      results %2 %3
    end)"),
            1);
  expect({R"(
    body main@0 entry
      param %0 f32(4)
      kernel Neg in %0 out %1 f32(4)
      send 0 message 0 in %1 where "message to device 1"
      kernel Abs in %1 out %2 f32(4)
      results %2
    end)",
          R"(
    body main@1 entry device 1
      receive 0 message 0 out %0 f32(4) where "message from device 0"
      kernel Relu in %0 out %1 f32(4)
      results %1
    end)"});
  EXPECT_EQ(channel(0).from, 0);
  EXPECT_EQ(channel(0).to, 1);
  EXPECT_EQ(channel(0).capacity, 1);
  EXPECT_EQ(channel(0).slot_bytes, 64);
}

// The value that is sent first is read last. Its message is still received first.
TEST_F(Project, MessagesOfAChannelAreReceivedInTheOrderInWhichTheyAreSent) {
  EXPECT_EQ(run(R"(
    body main entry
      param %0 f32(4)
      kernel Neg in %0 out %1 f32(4)
      kernel Abs in %0 out %2 f32(4)
      kernel Relu in %2 out %3 f32(4) device 1
      kernel Exp in %1 out %4 f32(4) device 1
      results %3 %4
    end)"),
            2);
  expect({R"(
    body main@0 entry
      param %0 f32(4)
      kernel Neg in %0 out %1 f32(4)
      send 0 message 1 in %1 where "message to device 1"
      kernel Abs in %0 out %2 f32(4)
      send 0 message 0 in %2 where "message to device 1"
    end)",
          R"(
    body main@1 entry device 1
      receive 0 message 1 out %0 f32(4) where "message from device 0"
      receive 0 message 0 out %1 f32(4) where "message from device 0"
      kernel Relu in %1 out %2 f32(4)
      kernel Exp in %0 out %3 f32(4)
      results %2 %3
    end)"});
  EXPECT_EQ(channel(0).capacity, 2);
}

// The variable is on device 0, the first device that reads it.
TEST_F(Project, AVariableIsWhereItIsUpdated) {
  EXPECT_EQ(run(R"(
    body main entry
      variable 0 %0 f32(4)
      param %1 f32(4)
      kernel Neg in %0 out %2 f32(4)
      kernel AddLhsInplace in %0 %1 out %3 f32(4) tie 0 %0 device 1
      results %2
      last 0 %3
    end)"),
            1);
  EXPECT_EQ(program_->program.variables[exe::VariableId(0)].device, 1);
  expect({R"(
    body main@0 entry
      receive 0 message 0 out %0 f32(4) where "message from device 1"
      kernel Neg in %0 out %1 f32(4)
      results %1
    end)",
          R"(
    body main@1 entry device 1
      param %0 f32(4)
      variable 0 %1 f32(4)
      send 0 message 0 in %1 where "message to device 0"
      kernel AddLhsInplace in %1 %0 out %2 f32(4) tie 0 %1
      last 0 %2
    end)"});
}

TEST_F(Project, AnUpdateOfAnotherDevicesVariableIsSentBack) {
  EXPECT_EQ(run(R"(
    body first entry
      variable 0 %0 f32(4)
      param %1 f32(4)
      kernel AddLhsInplace in %0 %1 out %2 f32(4) tie 0 %0
      last 0 %2
    end
    body second entry
      variable 0 %0 f32(4)
      param %1 f32(4)
      kernel Neg in %0 out %2 f32(4)
      kernel AddLhsInplace in %0 %1 out %3 f32(4) tie 0 %0 device 1
      results %2
      last 0 %3
    end)"),
            2);
  EXPECT_EQ(program_->program.variables[exe::VariableId(0)].device, 0);
  expect({R"(
    body second@0 entry
      variable 0 %0 f32(4)
      kernel Neg in %0 out %1 f32(4)
      send 0 message 0 in %0 where "message to device 1"
      receive 1 message 1 out %2 f32(4) where "message from device 1"
      copy in %2 out %3 f32(4) tie 0 %0
      results %1
      last 0 %3
    end)",
          R"(
    body second@1 entry device 1
      param %0 f32(4)
      receive 0 message 0 out %1 f32(4) where "message from device 0"
      kernel AddLhsInplace in %1 %0 out %2 f32(4) tie 0 %1
      send 1 message 1 in %2 where "message to device 0"
    end)"},
         1);
}

// Both entries of device 1 read the variable, which is one value of the plan.
TEST_F(Project, AValueThatIsSentHasOneNumber) {
  const std::string reads = R"( entry
      variable 0 %0 f32(4)
      kernel Neg in %0 out %1 f32(4)
      kernel Abs in %0 out %2 f32(4) device 1
      kernel Abs in %1 out %3 f32(4) device 1
      results %1 %2 %3
    end
)";
  EXPECT_EQ(run("body first" + reads + "body second" + reads), 4);
  std::vector<int32_t> numbers;
  for (const EntryBodies& entry : program_->program.entries) {
    for (const Node& node : program_->program.body(entry.bodies[1]).nodes) {
      if (const auto* receive = node.as<Node::Receive>()) numbers.push_back(receive->message);
    }
  }
  ASSERT_EQ(numbers.size(), 4U);
  EXPECT_NE(numbers[0], numbers[2]);
  EXPECT_EQ(numbers[1], numbers[3]);
}

TEST_F(Project, ASentViewHasBytesOfItsOwn) {
  run(R"(
    body main entry
      param %0 f32(4)
      view in %0 out %1 f32(2,2)
      kernel Neg in %1 out %2 f32(2,2) device 1
      results %2
    end)");
  EXPECT_TRUE(program_->program.body(program_->program.entries[0].bodies[0])
                  .nodes[NodeId(0)]
                  .is<Node::Copy>());
}

TEST_F(Project, StreamsAndBuffersBelongToTheirFirstUser) {
  EXPECT_EQ(run(R"(
    body main entry
      transfer - stream_in 0 io out %0 f32(4) device 1
      transfer - stream_in 0 io out %1 f32(4)
      kernel Neg in %1 out %2 f32(4)
      results %2
    end)"),
            1);
  const Program& p = program_->program;
  EXPECT_EQ(p.body(p.entries[0].bodies[0]).nodes.size(), 2U);
  const Body& second = p.body(p.entries[0].bodies[1]);
  EXPECT_EQ(second.nodes[NodeId(0)].as<Node::Transfer>()->token, 0);
  EXPECT_EQ(second.nodes[NodeId(1)].as<Node::Transfer>()->token, 1);
}

TEST_F(Project, EveryDeviceEvaluatesIndexExpressions) {
  EXPECT_EQ(run(R"(
    body main entry
      index (2+3) out %0 i32()
      kernel Neg in %0 out %1 i32()
      kernel Neg in %0 out %2 i32() device 1
      results %1 %2
    end)"),
            0);
  for (const BodyId id : program_->program.entries[0].bodies)
    EXPECT_TRUE(program_->program.body(id).nodes[NodeId(0)].is<Node::Index>());
}

// The first message is sent before the loop and read after it. It is received before the loop,
// whose messages follow in the same channel.
constexpr const char* kLoopOnTwoDevices = R"(
    body main entry
      param %0 f32(4)
      kernel Neg in %0 out %1 f32(4)
      loop trips 3 carried 1 1 index it in %0 out %2 f32(4)
      kernel Relu in %1 out %3 f32(4) device 1
      results %2 %3
    end
    body step loop_body
      index_param 0 2
      param %0 f32(4)
      kernel Neg in %0 out %1 f32(4)
      kernel Abs in %1 out %2 f32(4) device 1
      results %2
    end)";

TEST_F(Project, ACallIsABarrierOfItsChannels) {
  EXPECT_EQ(run(kLoopOnTwoDevices), 3);
  const Program& p = program_->program;
  const Body& first = p.body(p.entries[0].bodies[0]);
  const Body& second = p.body(p.entries[0].bodies[1]);
  EXPECT_TRUE(second.nodes[NodeId(0)].is<Node::Receive>());
  ASSERT_TRUE(second.nodes[NodeId(1)].is<Node::Loop>());
  const Node::Loop& loop = *second.nodes[NodeId(1)].as<Node::Loop>();
  EXPECT_EQ(loop.trips, 3);
  EXPECT_EQ(loop.carried, 0) << "the carried value is at home on device 0";
  EXPECT_TRUE(loop.index_args.empty()) << "nothing reads the iteration";
  EXPECT_EQ(first.nodes[NodeId(2)].as<Node::Loop>()->carried, 1);
  EXPECT_EQ(to_text(p.body(loop.callee)), to_text(parse_body(R"(
    body step@1 loop_body device 1
      receive 0 message 0 out %0 f32(4) where "message from device 0"
      kernel Abs in %0 out %1 f32(4)
      send 1 message 1 in %1 where "message to device 0"
    end)")));
}

// Values 0 and 1 only rotate in each iteration; value 2 is read on device 1. So all are on device
// 1,
//  although device 0 runs nodes of the body.
TEST_F(Project, AValueThatOnlyRotatesIsAtHomeWhereItIsReadLast) {
  EXPECT_EQ(run(R"(
    body main entry
      kernel Init out %0 f32(4) device 1
      kernel Init out %1 f32(4) device 1
      kernel Init out %2 f32(4) device 1
      loop trips 3 carried 3 1 index it in %0 %1 %2 out %3 f32(4) %4 f32(4) %5 f32(4)
      transfer - stream_out 1 compute in %5 device 1
    end
    body step loop_body
      index_param 0 2
      param %0 f32(4)
      param %1 f32(4)
      param %2 f32(4)
      kernel Init out %3 f32(4)
      kernel PrintTensor prints in %3
      kernel Neg in %2 out %4 f32(4) device 1
      results %4 %0 %1
    end)"),
            0)
      << "no message";
  const Program& p = program_->program;
  const Body& second = p.body(p.entries[0].bodies[1]);
  ASSERT_TRUE(second.nodes[NodeId(3)].is<Node::Loop>());
  EXPECT_EQ(second.nodes[NodeId(3)].as<Node::Loop>()->carried, 3);
}

TEST_F(Project, RefusesConditionalsOnSeveralDevices) {
  expect_refused({{"branch",
                   [&] {
                     run(R"(
    body main entry
      param %0 bool()
      branch 1 2 then 0 in %0
    end
    body f function
      kernel Init out %0 f32(4)
    end
    body g function
      kernel Init out %0 f32(4) device 1
    end)");
                   },
                   "its branches must run on one device, got devices 0 and 1"}});
}

}  // namespace
}  // namespace sluice::compiler
