#include "sluice/report/plan_report.h"

#include <gtest/gtest.h>

#include "sluice/exe/test_plans.h"
#include "sluice/report/traffic.h"

namespace sluice::report {
namespace {

TEST(Report, CountsWhatARunMovesBesideAndOnTheComputeQueue) {
  const PlanReport r = plan_report(exe::plans::plan(exe::plans::overlapped_loop()));
  ASSERT_EQ(r.transfers.size(), 3u);
  const auto is = [&](size_t i, const char* queue, int64_t loads, int64_t stores) {
    const TransferReport& t = r.transfers[i];
    EXPECT_EQ(t.program, "run");
    EXPECT_EQ(t.memory, "tier host");
    EXPECT_EQ(t.queue, queue);
    EXPECT_EQ(t.loads, loads);
    EXPECT_EQ(t.loaded_bytes, loads * 64);
    EXPECT_EQ(t.stores, stores);
    EXPECT_EQ(t.stored_bytes, stores * 64);
  };
  is(0, "compute", 1, 1);
  is(1, "load", 6, 0);
  is(2, "store", 0, 5);
  EXPECT_NE(memory_map(r).find("tier host on queue load, a run of 'run': 6 in, 384 bytes; 0 out, 0 "
                               "bytes\n"),
            std::string::npos);
}

TEST(Report, CountsBytesByKind) {
  const PlanReport r = plan_report(exe::plans::plan(exe::plans::train_step()));
  ASSERT_EQ(r.memories.size(), 1u);
  const exe::MemoryNeeds& m = r.memories[0];
  EXPECT_EQ(m.name, "device 0 (cpu)");
  EXPECT_EQ(m.persistent_bytes, 128);
  EXPECT_EQ(m.frame_bytes, 192);
  EXPECT_EQ(m.workspace_bytes, 256);
  EXPECT_EQ(m.total_bytes, exe::planned_bytes(exe::plans::plan(exe::plans::train_step()),
                                              exe::DeviceId(0), exe::Space::kDevice));
  EXPECT_EQ(m.bound_bytes, 64 + 8 + 192 + 256);
  EXPECT_EQ(m.budget_bytes, 1024);
  EXPECT_EQ(m.peak_program, "train");
  ASSERT_EQ(m.peak_objects.size(), 6u);
  EXPECT_EQ(m.peak_objects[0].kind, "workspace");
  EXPECT_EQ(m.peak_objects[1].name, "fc.weight");
  EXPECT_EQ(m.peak_objects[2].where, "main step 4");
  EXPECT_EQ(m.peak_objects[5].name, "scale");
}

TEST(Report, CountsTheStepsOnReferenceKernels) {
  EXPECT_TRUE(plan_report(exe::plans::plan(exe::plans::branch())).reference_steps.empty());
  const PlanReport r = plan_report(exe::plans::plan(exe::plans::replaced(
      exe::plans::branch(), "  0 sync kernel cpu.neg", "  0 sync kernel cpu.reference")));
  ASSERT_EQ(r.reference_steps.size(), 1u);
  EXPECT_EQ(r.reference_steps[0].op, "Neg");
  EXPECT_EQ(r.reference_steps[0].steps, 1);
}

TEST(Report, LooksThroughCalls) {
  const PlanReport r = plan_report(exe::plans::plan(exe::plans::replaced(
      exe::plans::replaced(exe::plans::branch(), "frame 384 bound 320\n",
                           "frame 384 bound 320\n  buffer \"x\" offset 64 bytes 64 steps 1 3\n"
                           "  buffer \"frame of f\" offset 128 bytes 64 steps 2 3\n"
                           "  buffer \"a\" offset 192 bytes 64 steps 2 4\n"),
      "  0 sync kernel cpu.neg",
      "  buffer \"then.t\" offset 0 bytes 64 steps 0 2\n  0 sync kernel cpu.neg")));
  const exe::MemoryNeeds& m = r.memories[0];
  ASSERT_EQ(m.peak_objects.size(), 3u);
  EXPECT_EQ(m.peak_objects[0].name, "x");
  EXPECT_EQ(m.peak_objects[2].name, "then.t");
  EXPECT_EQ(m.peak_objects[2].where, "main step 2 > f step 0 > then step 0");
}

TEST(Report, ListsFunctionsAndTiers) {
  const PlanReport r = plan_report(exe::plans::plan(exe::plans::overlapped_loop()));
  ASSERT_EQ(r.functions.size(), 2u);
  EXPECT_EQ(r.functions[exe::FunctionId(0)].name, "body");
  EXPECT_EQ(r.functions[exe::FunctionId(0)].steps, 5);
  EXPECT_EQ(r.functions[exe::FunctionId(0)].call_sites, 1);
  EXPECT_GT(r.functions[exe::FunctionId(1)].program_bytes, 0);
  EXPECT_EQ(r.program_bytes, r.functions[exe::FunctionId(0)].program_bytes +
                                 r.functions[exe::FunctionId(1)].program_bytes);
  ASSERT_EQ(r.memories.size(), 2u);
  EXPECT_EQ(r.memories[1].tier_bytes, 1024);
  EXPECT_EQ(r.memories[1].bound_bytes, 2 * 6 * 64);
  const std::string text = memory_map(r);
  EXPECT_NE(
      text.find("tier host: 1,024 bytes of a budget of 4,096, 1.333 x the live-set bound of 768\n"),
      std::string::npos)
      << text;
  EXPECT_NE(text.find("body"), std::string::npos);
}

// Function 0 loads 3 entries and function 1 stores 2. Function 2 branches to either; function 3
// calls function 2 four times and then function 0.
TEST(TrafficCounter, TakesTheLargerArmOfABranch) {
  const auto transfers = [](exe::TransferKind kind, int count) {
    exe::Function f;
    for (int i = 0; i < count; ++i) {
      exe::Issue issue{.kind = kind};
      issue.memory.spec = TensorSpec{{10}, f32, {}};
      issue.memory.bytes = 40;
      f.steps.push_back({.body = issue});
    }
    return f;
  };
  exe::Executable e;
  e.remote_buffers.push_back({.name = "a", .spec = TensorSpec{{10}, f32, {}}});
  e.functions.push_back(transfers(exe::TransferKind::kRemoteLoad, 3));
  e.functions.push_back(transfers(exe::TransferKind::kRemoteStore, 2));
  e.functions.resize(4);
  exe::Branch branch;
  branch.then_call.function = exe::FunctionId(0);
  branch.else_call.function = exe::FunctionId(1);
  e.functions[exe::FunctionId(2)].steps.push_back({.body = branch});
  exe::Loop loop{.trips = 4};
  loop.body.function = exe::FunctionId(2);
  e.functions[exe::FunctionId(3)].steps.push_back({.body = loop});
  e.functions[exe::FunctionId(3)].steps.push_back(
      {.body = exe::Call{.function = exe::FunctionId(0)}});
  e.programs.push_back({.name = "train", .starts = {exe::Start{.function = exe::FunctionId(3)}}});
  const auto moved = [&] { return TrafficCounter(e).of(e.program("train")); };
  ASSERT_EQ(moved().size(), 1u);
  EXPECT_EQ(moved()[0].kind, exe::TransferKind::kRemoteLoad);
  EXPECT_EQ(moved()[0].transfers, 4 * 3 + 3);
  EXPECT_EQ(moved()[0].bytes, (4 * 3 + 3) * 40);
  std::get<exe::Loop>(e.functions[exe::FunctionId(3)].steps[0].body).trips = INT64_MAX;
  EXPECT_EQ(moved()[0].bytes, INT64_MAX);
  e.functions[exe::FunctionId(1)].steps.resize(4, e.functions[exe::FunctionId(1)].steps[0]);
  std::get<exe::Loop>(e.functions[exe::FunctionId(3)].steps[0].body).trips = 2;
  ASSERT_EQ(moved().size(), 2u);
  EXPECT_EQ(moved()[0].transfers, 3);
  EXPECT_EQ(moved()[1].kind, exe::TransferKind::kRemoteStore);
  EXPECT_EQ(moved()[1].transfers, 2 * 4);
}

TEST(Report, OfReplicasCountsADevicesBytesAndAMachinesTiers) {
  exe::Executable e = exe::plans::plan(exe::plans::overlapped_loop());
  const PlanReport one = plan_report(e);
  e.replicas = 4;
  const PlanReport four = plan_report(e);
  ASSERT_EQ(four.memories.size(), 2u);
  EXPECT_EQ(four.memories[0].name, "device 0 (cpu, each of 4 replicas)");
  EXPECT_EQ(four.memories[0].total_bytes, one.memories[0].total_bytes);
  EXPECT_EQ(four.memories[1].total_bytes, 4 * one.memories[1].total_bytes);
  EXPECT_EQ(four.memories[1].peak_objects[0].bytes, 4 * one.memories[1].peak_objects[0].bytes);
}

}  // namespace
}  // namespace sluice::report
