#include "sluice/compiler/lower/tables.h"

#include <gtest/gtest.h>

#include "sluice/base/test_refusals.h"
#include "sluice/compiler/test_bodies.h"

namespace sluice::compiler {
namespace {

constexpr const char* kVariables = R"(
    body main entry
      variable 0 %0 f32(3) name "a" 0
      variable 1 %1 f32(5) name "b" 0
      constant 0 %2 i32()
    end)";

TEST(Tables, VariablesAndConstantsHaveAlignedPlacesOfTheirOwn) {
  TestProgram p(kVariables, {7}, 2);
  p.program.variables[exe::VariableId(1)].device = 1;
  Tables tables(p.program, p.context);
  const exe::Executable& e = p.program.executable;
  EXPECT_EQ(tables.variable(exe::VariableId(0)).offset, 0);
  EXPECT_NE(tables.variable(exe::VariableId(0)).index, tables.variable(exe::VariableId(1)).index)
      << "each device has an arena";
  EXPECT_EQ(tables.constant(ConstantIndex(0), exe::DeviceId(0)).offset, 64);
  EXPECT_EQ(e.constants.size(), 1U) << "a constant is there where it is asked for";
  EXPECT_EQ(tables.constant(ConstantIndex(0), exe::DeviceId(0)).offset, 64);
  tables.constant(ConstantIndex(0), exe::DeviceId(1));
  EXPECT_EQ(e.constants.size(), 2U);
  EXPECT_EQ(e.arenas[tables.variable(exe::VariableId(0)).arena()].bytes, 64 + 4);
}

TEST(Tables, QueuesAreThereWhereATransferUsesThem) {
  TestProgram p(R"(
    body main entry
      transfer - stream_in 0 io queue 1 out %0 f32(4)
    end)",
                {}, 2);
  Tables(p.program, p.context);
  EXPECT_EQ(p.program.executable.devices[exe::DeviceId(0)].queues.size(), 2U);
  EXPECT_EQ(p.program.executable.devices[exe::DeviceId(1)].queues.size(), 1U);
}

TEST(Tables, AChannelHasSlotsOnItsReceiver) {
  TestProgram p(kVariables, {7}, 2);
  p.program.channels.push_back({0, 1, 3, 128});
  Tables(p.program, p.context);
  const exe::Executable& e = p.program.executable;
  ASSERT_EQ(e.channels.size(), 1U);
  EXPECT_EQ(e.channels[exe::ChannelId(0)].name, "0to1");
  EXPECT_EQ(e.arenas[e.channels[exe::ChannelId(0)].arena].bytes, 384);
  EXPECT_EQ(e.arenas[e.channels[exe::ChannelId(0)].arena].device, 1);
}

TEST(Tables, RefusesUnevenProcessesAndOtherNumbersOfQueues) {
  TestProgram p(kVariables, {7});
  p.options.processes = 2;
  expect_refused({{"processes", [&] { Tables(p.program, p.context); },
                   "2 processes cannot share 1 replicas evenly"},
                  {"queues", [] { queue_names(2); }, "must be 0, 1 or 3"}});
}

}  // namespace
}  // namespace sluice::compiler
