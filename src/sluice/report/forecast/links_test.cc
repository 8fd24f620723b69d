#include "sluice/report/forecast/links.h"

#include <gtest/gtest.h>

#include "sluice/base/test_refusals.h"
#include "sluice/exe/test_plans.h"
#include "sluice/report/forecast/forecast.h"
#include "sluice/report/traffic.h"

namespace sluice::report {
namespace {

// Two devices in a host, two hosts in a rack. A byte needs 1 s in a host, 10 s in a rack, else 100.
Rates rack(Cluster::Order order = Cluster::Order::kReplicas) {
  Rates rates{.flops = 1e30, .copies = 1e30, .remote = 1e30, .messages = 1, .latency = 0.5};
  rates.cluster = Cluster{order,
                          {{.devices = 2, .messages = 0.1, .latency = 2},
                           {.devices = 4, .messages = 0.01, .latency = 3}}};
  return rates;
}

exe::Collective collective_of(const char* op, int64_t bytes, const char* combined = "add") {
  exe::Collective c{.op = op};
  c.attrs.items = {{"op", std::string(combined)}};
  c.operands.push_back({.bytes = bytes});
  return c;
}

TEST(Links, AMessageTakesTheTimeOfTheLinkBetweenItsDevices) {
  const Rates rates = rack();
  const Links links(rates, 1, 8);
  EXPECT_DOUBLE_EQ(links.transfer_seconds(0, 1, 3), 3);
  EXPECT_DOUBLE_EQ(links.latency(1, 0), 0.5);
  EXPECT_DOUBLE_EQ(links.transfer_seconds(1, 2, 3), 30);
  EXPECT_DOUBLE_EQ(links.latency(1, 2), 2);
  EXPECT_DOUBLE_EQ(links.transfer_seconds(3, 4, 3), 300);
  EXPECT_DOUBLE_EQ(links.latency(0, 7), 3);
}

TEST(Links, TheReplicaWithTheSlowestLinkCounts) {
  // Replica 0 has devices 0 to 2, replica 1 has devices 3 to 5.
  const Rates rates = rack();
  EXPECT_DOUBLE_EQ(Links(rates, 1, 3).transfer_seconds(0, 1, 1), 1);
  EXPECT_DOUBLE_EQ(Links(rates, 2, 3).transfer_seconds(0, 1, 1), 100);
}

TEST(Links, TheOrderOfDevicesDecidesWhichOfThemShareAHost) {
  const Rates replicas = rack(), devices = rack(Cluster::Order::kDevices);
  const exe::Collective sum = collective_of("ReplicatedAllReduce", 4);
  // Two replicas of two devices. Each member sends 4 bytes, in two rounds.
  EXPECT_DOUBLE_EQ(Links(replicas, 2, 2).transfer_seconds(0, 1, 1), 1);
  EXPECT_DOUBLE_EQ(Links(replicas, 2, 2).collective_seconds(0, {1, 2}, sum), 2 * 2 + 40);
  EXPECT_DOUBLE_EQ(Links(devices, 2, 2).transfer_seconds(0, 1, 1), 10);
  EXPECT_DOUBLE_EQ(Links(devices, 2, 2).collective_seconds(0, {1, 2}, sum), 2 * 0.5 + 4);
}

TEST(Links, ACollectiveTakesTheTimeOfTheSlowestLinkOfItsGroup) {
  const Rates rates = rack();
  const Links links(rates, 8, 1);
  const exe::Collective gather = collective_of("ReplicatedAllGather", 4);
  EXPECT_DOUBLE_EQ(links.collective_seconds(0, {1, 2}, gather), 0.5 + 4);
  EXPECT_DOUBLE_EQ(links.collective_seconds(0, {1, 4}, gather), 2 + 3 * 40);
  EXPECT_DOUBLE_EQ(links.collective_seconds(0, {2, 2}, gather), 2 + 40);
  EXPECT_DOUBLE_EQ(links.collective_seconds(0, {4, 2}, gather), 3 + 400);
  const exe::Collective scatter = collective_of("ReplicatedReduceScatter", 4);
  EXPECT_DOUBLE_EQ(links.collective_seconds(0, {1, 8}, scatter), 3 + 7 * 4 * 100 / 8.0);
  EXPECT_EQ(links.collective_seconds(0, {1, 8}, collective_of("ReplicatedSlice", 4)), 0);
  EXPECT_EQ(links.collective_seconds(0, {1, 1}, gather), 0);
}

// Devices 0 and 1 have a slow link, devices 1 and 4 a fast one, and hosts 0 and 2 another one.
Rates rack_with_pairs() {
  Rates rates = rack();
  rates.cluster->devices = 8;
  rates.cluster->pairs = {{1, 1, 0, 0.2, 7}, {2, 2, 0, 0.25, 1}, {1, 1, 4, 2, 0.125}};
  return rates;
}

TEST(Links, AMessageOfAPairTakesTheTimeOfThePair) {
  const Rates rates = rack_with_pairs();
  const Links links(rates, 1, 8);
  for (const auto& [a, b] : {std::pair(0, 1), std::pair(1, 0)}) {
    EXPECT_DOUBLE_EQ(links.transfer_seconds(a, b, 3), 15);
    EXPECT_DOUBLE_EQ(links.latency(a, b), 7);
  }
  // Host 0 has devices 0 and 1, host 2 has devices 4 and 5.
  EXPECT_DOUBLE_EQ(links.transfer_seconds(0, 5, 3), 12);
  EXPECT_DOUBLE_EQ(links.latency(5, 1), 1);
  EXPECT_DOUBLE_EQ(links.transfer_seconds(4, 1, 3), 1.5);  // The pair of devices, not of hosts.
  EXPECT_DOUBLE_EQ(links.latency(1, 4), 0.125);
  EXPECT_DOUBLE_EQ(links.transfer_seconds(1, 2, 3), 30);  // Other links have their level's rate.
  EXPECT_DOUBLE_EQ(links.latency(2, 3), 0.5);
  EXPECT_DOUBLE_EQ(links.transfer_seconds(0, 6, 3), 300);
}

TEST(Links, TheReplicaWithTheSlowestPairCounts) {
  const Rates rates = rack_with_pairs();
  const Links links(rates, 4, 2);
  EXPECT_DOUBLE_EQ(links.transfer_seconds(0, 1, 1), 5);
  EXPECT_DOUBLE_EQ(links.latency(0, 1), 7);
}

TEST(Links, TheSlowestLinkOfARingCounts) {
  const Rates rates = rack_with_pairs();
  const Links links(rates, 8, 1);
  const exe::Collective gather = collective_of("ReplicatedAllGather", 4);
  EXPECT_DOUBLE_EQ(links.collective_seconds(0, {1, 2}, gather), 7 + 4 / 0.2);
  // The ring of devices 0, 1, 2, 3 has the slowest rate and the highest latency on two links.
  EXPECT_DOUBLE_EQ(links.collective_seconds(0, {1, 4}, gather), 7 + 3 * 4 / 0.1);
  // The pair of hosts joins devices 0 and 4, and that of devices 1 and 5; others have their level.
  EXPECT_DOUBLE_EQ(Links(rates, 5, 1).collective_seconds(0, {4, 2}, gather), 1 + 4 / 0.25);
  EXPECT_DOUBLE_EQ(links.collective_seconds(0, {4, 2}, gather), 3 + 4 / 0.01);
}

TEST(Links, AClusterHasItsDevicesAtMost) {
  const Rates rates = rack_with_pairs();
  expect_refused({{"nine devices", [&] { Links(rates, 3, 3); },
                   "devices of all replicas: must be at most 8, the 'devices' of the machine's "
                   "'cluster', got 9"}});
}

TEST(Links, CollectivesSendTheirShareOfTheOperand) {
  const auto sent = [](const char* op, int64_t members, const char* combined = "add") {
    return exchanged_bytes(collective_of(op, 100, combined), members);
  };
  EXPECT_EQ(sent("ReplicatedAllReduce", 4), 2 * 3 * 100);
  EXPECT_EQ(sent("ReplicatedAllReduceInplace", 4), 2 * 3 * 100);
  EXPECT_EQ(sent("ReplicatedReduceScatter", 4), 3 * 100);
  EXPECT_EQ(sent("ReplicatedReduceScatter", 4, "local"), 0);
  EXPECT_EQ(sent("ReplicatedAllGather", 4), 4 * 3 * 100);
  EXPECT_EQ(sent("ReplicatedSlice", 4), 0);
  EXPECT_EQ(sent("ReplicatedAllReduce", 1), 0);
  CollectiveBytes all{.group_bytes = 601, .members = 4};
  EXPECT_EQ(all.sent_bytes(), 151);
}

// Every kernel runs for two seconds. Device 0 sends five messages of 64 bytes.
exe::Executable timed_pair() {
  exe::Executable e = exe::plans::plan(exe::plans::two_devices());
  for (exe::Function& f : e.functions) {
    for (exe::Step& step : f.steps) {
      if (auto* kernel = std::get_if<exe::Kernel>(&step.body)) kernel->flops = 2;
    }
  }
  return e;
}

Rates cluster_rates(double messages, double latency) {
  Rates rates{.flops = 1, .copies = 1e30, .remote = 1e30, .messages = messages, .latency = latency};
  rates.cluster.emplace();
  return rates;
}

TEST(Links, AReceiveWaitsForItsMessage) {
  // Two messages pass while a kernel runs, but the third one waits for a slot of the channel. So
  // the latency delays the first, the third and the fifth message.
  const ProgramForecast fast = forecast(timed_pair(), cluster_rates(64, 10))[0];
  EXPECT_DOUBLE_EQ(fast.seconds, 3 * 11 + 2);
  ASSERT_EQ(fast.devices.size(), 2u);
  EXPECT_EQ(fast.devices[1].device, exe::DeviceId(1));
  EXPECT_DOUBLE_EQ(fast.devices[1].message_wait, 11 + 2 * 7);
  EXPECT_DOUBLE_EQ(fast.devices[1].seconds, 35);
  // Messages pass one after another, each in 4 seconds. Device 0 waits for slots: the channel has
  // two, and the first is free once device 1 has received the first message.
  const ProgramForecast slow = forecast(timed_pair(), cluster_rates(16, 0))[0];
  EXPECT_DOUBLE_EQ(slow.seconds, 5 * 4 + 2);
  EXPECT_DOUBLE_EQ(slow.devices[1].message_wait, 4 + 4 * 2);
  EXPECT_DOUBLE_EQ(slow.devices[0].message_wait, 3 * 4);
  EXPECT_DOUBLE_EQ(slow.bubble(), (22.0 + 12.0) / (2 * 22.0));
}

TEST(Links, ManyIterationsAreNotWalkedOneByOne) {
  exe::Executable e = timed_pair();
  const int64_t trips = int64_t{1} << 40;
  for (exe::Function& f : e.functions) {
    for (exe::Step& step : f.steps) {
      if (auto* loop = std::get_if<exe::Loop>(&step.body)) loop->trips = trips;
    }
  }
  const ProgramForecast program = forecast(e, cluster_rates(16, 0))[0];
  EXPECT_NEAR(program.seconds / (4 * static_cast<double>(trips)), 1, 1e-6);
  EXPECT_NEAR(program.bubble(), 0.75, 1e-6);
}

TEST(Links, ReplicasOfAClusterShareNeitherWorkersNorRemoteMemory) {
  exe::Executable four = exe::plans::plan(exe::plans::overlapped_loop());
  Rates rates = cluster_rates(1, 1);
  rates.flops = 1e30;
  rates.remote = 64;
  const double one = forecast(four, rates)[0].seconds;
  four.replicas = 4;
  EXPECT_DOUBLE_EQ(forecast(four, rates)[0].seconds, one);
  EXPECT_EQ(forecast(four, rates)[0].transfers[0].bytes, 4 * 13 * 64);
}

TEST(Links, CollectivesOfADeviceTakeTheTimeOfTheirMessages) {
  const exe::Executable e = exe::plans::plan(exe::plans::collectives());
  const ProgramForecast program = forecast(e, cluster_rates(1, 0))[0];
  // Three times: 60 bytes are summed over four replicas, then scattered over pairs.
  EXPECT_NEAR(program.devices[0].collective_seconds, 3 * (2 * 3 * 60 / 4.0 + 60 / 2.0), 1e-9);
}

}  // namespace
}  // namespace sluice::report
