#include "sluice/report/forecast/forecast.h"

#include <gtest/gtest.h>

#include "sluice/exe/test_plans.h"

namespace sluice::report {
namespace {

// Every kernel takes two seconds of one worker. Every entry of the plans takes one second of remote
// memory.
Rates slow() { return {.threads = 2, .flops = 1, .copies = 1e30, .remote = 64}; }

exe::Executable plan(const std::string& text) {
  exe::Executable e = exe::plans::plan(text);
  for (exe::Function& f : e.functions) {
    for (exe::Step& step : f.steps) {
      if (auto* kernel = std::get_if<exe::Kernel>(&step.body)) kernel->flops = 2;
    }
  }
  return e;
}

TEST(Forecast, TransfersOnIoQueuesAreExposedAsFarAsTheyAreWaitedFor) {
  const auto programs = forecast(plan(exe::plans::overlapped_loop()), slow());
  ASSERT_EQ(programs.size(), 1u);
  // A load. Then, five times, a load during a kernel and a store after both. Then a kernel, a store
  // and a load.
  EXPECT_EQ(programs[0].program, "run");
  EXPECT_DOUBLE_EQ(programs[0].seconds, 1 + 5 * 2 + 1 + 1 + 1);
  ASSERT_EQ(programs[0].transfers.size(), 1u);
  const TransferForecast& t = programs[0].transfers[0];
  EXPECT_EQ(t.memory, "tier host");
  EXPECT_EQ(t.bytes, 13 * 64);
  EXPECT_DOUBLE_EQ(t.seconds, 13);
  EXPECT_DOUBLE_EQ(t.exposed_seconds, 1 + 5 + 1 + 1);
}

TEST(Forecast, AWaitForWhatHasEndedExposesNothing) {
  // The loop waits for its stores first. When this wait is over, the load has ended.
  Rates rates = slow();
  rates.remote = 64e6;
  const auto programs = forecast(plan(exe::plans::overlapped_loop()), rates);
  EXPECT_NEAR(programs[0].seconds, 6, 1e-4);
  EXPECT_NEAR(programs[0].transfers[0].exposed_seconds, 8e-6, 1e-12);
}

TEST(Forecast, ReplicasShareWorkersAndTheBandwidthOfRemoteMemory) {
  exe::Executable four = plan(exe::plans::overlapped_loop());
  four.replicas = 4;
  four.devices[exe::DeviceId(0)].workers = 1;  // Each of the two threads runs two replicas.
  const auto programs = forecast(four, slow());
  const TransferForecast& t = programs[0].transfers[0];
  EXPECT_EQ(t.bytes, 4 * 13 * 64);
  EXPECT_DOUBLE_EQ(t.seconds, 4 * 13);
  // Kernels take 4 seconds as well: a thread runs two replicas of 2 seconds each.
  EXPECT_DOUBLE_EQ(programs[0].seconds, 4 * 14);
}

TEST(Forecast, ManyIterationsAreNotWalkedOneByOne) {
  const auto programs = forecast(plan(exe::plans::carried_ring()), slow());
  EXPECT_DOUBLE_EQ(programs[0].seconds, 2.0 + 2.0 * 1000001);
  exe::Executable longer = plan(exe::plans::overlapped_loop());
  for (exe::Step& step : longer.functions[exe::FunctionId(1)].steps) {
    if (auto* loop = std::get_if<exe::Loop>(&step.body)) loop->trips = int64_t{1} << 40;
  }
  const auto much = forecast(longer, slow());
  EXPECT_DOUBLE_EQ(much[0].seconds, 4 + 2 * static_cast<double>(int64_t{1} << 40));
  EXPECT_DOUBLE_EQ(much[0].transfers[0].exposed_seconds, 3 + static_cast<double>(int64_t{1} << 40));
}

TEST(Forecast, TheSlowerArmOfABranchCounts) {
  // The function is called twice. One arm has two kernels, the other arm has one.
  EXPECT_GE(forecast(plan(exe::plans::branch()), slow())[0].seconds, 4);
}

TEST(Forecast, KernelsThatOnlyMoveBytesTakeTheTimeOfACopy) {
  Rates rates = slow();
  rates.copies = 64;
  rates.remote = 1e30;
  // Reading 64 bytes and writing 64 bytes is a copy of 64 bytes, shared by two workers.
  EXPECT_NEAR(forecast(exe::plans::plan(exe::plans::overlapped_loop()), rates)[0].seconds, 6 * 0.5,
              1e-9);
}

TEST(Forecast, DevicesGoSideBySide) {
  const auto programs = forecast(plan(exe::plans::two_devices()), slow());
  EXPECT_NEAR(programs[0].seconds, 5 * 2, 1e-9);
  ASSERT_EQ(programs[0].transfers.size(), 1u);
  EXPECT_EQ(programs[0].transfers[0].memory, "streams");
  EXPECT_EQ(programs[0].transfers[0].bytes, 10 * 64);
}

}  // namespace
}  // namespace sluice::report
