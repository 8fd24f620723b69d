// The network of document 002 on four devices, a block on each: its messages and transfers.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "sluice/exe/executable.h"
#include "sluice/models/model.h"
#include "sluice/sluice.h"

namespace sluice {
namespace {

exe::Executable plan(const train::Options& options) {
  Ir ir;
  const models::Sizes sizes{.micro_batch = 40, .eval_batch = 8};
  train::build_training(ir, models::find_model("mnist-cnn").build(sizes), nn::Optimizer::adamw(),
                        options);
  const Session session(ir, {.device = cpu_device({.threads = 1}),
                             .more_devices = std::vector(3, cpu_device({.threads = 1})),
                             .remote = "host"});
  EXPECT_TRUE(session.planned_bytes(2) == session.measured_bytes(2));
  return session.executable();
}

TEST(MnistCnnStages, SendEachActivationAndItsGradientOnce) {
  const exe::Executable e = plan({.strategy = train::pipelined(), .accumulate = 10});
  // Bytes of the messages between two devices in the body of the loop: one micro-batch.
  std::map<std::pair<int32_t, int32_t>, std::multiset<int64_t>> sent;
  for (const exe::Function& f : e.functions) {
    for (const exe::Step& step : f.steps) {
      const auto* loop = std::get_if<exe::Loop>(&step.body);
      if (loop == nullptr) continue;
      for (const exe::Step& inner : e.functions[loop->body.function].steps) {
        const auto* send = std::get_if<exe::Send>(&inner.body);
        if (send == nullptr) continue;
        const exe::Channel& c = e.channels[send->channel];
        sent[{c.from, c.to}].insert(send->operand.bytes);
      }
    }
  }
  const std::map<std::pair<int32_t, int32_t>, std::multiset<int64_t>> want{
      {{0, 1}, {230400}}, {{1, 0}, {230400}}, {{1, 2}, {51200}},
      {{2, 1}, {51200}},  {{2, 3}, {40960}},  {{3, 2}, {40960}}};
  EXPECT_EQ(sent, want);
}

TEST(MnistCnnStages, MoveTheStateOnceAnUpdate) {
  const exe::Executable e = plan({.strategy = train::pipelined(),
                                  .accumulate = 10,
                                  .locations = {.optimizer = train::Location::kRemote}});
  int64_t in = 0, out = 0;
  for (const exe::Function& f : e.functions) {
    for (const exe::Step& step : f.steps) {
      const auto* issue = std::get_if<exe::Issue>(&step.body);
      if (issue == nullptr) continue;
      if (issue->kind == exe::TransferKind::kRemoteLoad) in += issue->memory.bytes;
      if (issue->kind == exe::TransferKind::kRemoteStore) out += issue->memory.bytes;
    }
  }
  // Two values for each of the 90,026 weights; no program but "train" moves state.
  EXPECT_EQ(in, 720208);
  EXPECT_EQ(out, 720208);
}

}  // namespace
}  // namespace sluice
