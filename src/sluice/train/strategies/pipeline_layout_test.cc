// The stages, depths, messages and times that a pipelined step reports.
#include "sluice/train/strategies/pipeline_layout.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "sluice/base/test_refusals.h"
#include "sluice/exe/memory_needs.h"
#include "sluice/train/cut/test_networks.h"
#include "sluice/train/devices.h"

namespace sluice::train {
namespace {

constexpr int64_t kRows = 64, kColumns = 128;

// Blocks B0 to B3 of one product each, the last with the loss. Block `slow` has `extra` more.
Network layers(int slow = 0, int extra = 0) {
  return {Written([slow, extra](nn::Builder& b, const Inputs& in) {
            Tensor x = in["x"];
            for (int i = 0; i < 4; ++i) {
              const nn::Block block(b, "B" + std::to_string(i));
              for (int k = 0; k <= (i == slow ? extra : 0); ++k) {
                const Tensor w = b.add_variable_input(fmt::format("w{}_{}", i, k),
                                                      nn::normal(0, 0.05), {kColumns, kColumns});
                x = ops::gelu(ops::matmul(x, w));
              }
              if (i == 3 && in.mode() == nn::RunMode::kTrain)
                return Results{.losses = {{.value = ops::mean(x)}}};
            }
            return Results{.predictions = {{"y", x}}};
          }),
          {{.name = "x", .spec = f32_spec({kRows, kColumns})}}};
}

PipelinePlan plan(const Network& n, const Strategy& strategy, int64_t accumulate,
                  const DeviceRates& rates = {}) {
  Ir ir;
  const Training t =
      build_training(ir, n, nn::Optimizer::sgd(),
                     {.strategy = strategy, .rates = rates, .accumulate = accumulate});
  EXPECT_NE(t.pipeline, nullptr);
  return *t.pipeline;
}

std::vector<int64_t> in_flight(const PipelinePlan& plan) {
  std::vector<int64_t> result;
  for (const StagePlan& s : plan.stages) result.push_back(s.in_flight);
  return result;
}

TEST(PipelineLayout, ReportsActivationsInFlight) {
  using Depths = std::vector<int64_t>;
  const Network n = layers();
  EXPECT_EQ(in_flight(plan(n, pipelined(), 8)), (Depths{7, 5, 3, 1}));
  EXPECT_EQ(in_flight(plan(n, PipelinedExecution{{}, Schedule::kInterleaved}, 8)),
            (Depths{4, 3, 2, 1}));
  EXPECT_EQ(in_flight(plan(n, PipelinedExecution{{}, Schedule::kSequential}, 8)),
            (Depths{1, 1, 1, 1}));
  EXPECT_EQ(in_flight(plan(n, sharded(), 8)), (Depths{1, 1, 1, 1}));
  EXPECT_EQ(in_flight(plan(n, pipelined(), 2)), (Depths{2, 2, 2, 1}));
}

TEST(PipelineLayout, ReportsTheMessagesOfAMicroBatch) {
  const PipelinePlan p = plan(layers(), pipelined(), 3);
  constexpr int64_t kBytes = kRows * kColumns * 4;
  ASSERT_EQ(p.messages.size(), 6u);
  for (const MessageBytes& m : p.messages) {
    EXPECT_EQ(m.forward, m.to == m.from + 1 ? kBytes : 0)
        << m.from.value() << " to " << m.to.value();
    EXPECT_EQ(m.backward, m.to == m.from - 1 ? kBytes : 0)
        << m.from.value() << " to " << m.to.value();
  }
}

TEST(PipelineLayout, BalancesANumberOfStages) {
  // Six products: B1 has three of them.
  const PipelinePlan p = plan(layers(1, 2), PipelinedExecution{2}, 3);
  ASSERT_EQ(p.stages.size(), 2u);
  EXPECT_EQ(p.stages[StageId(0)].blocks, (std::vector<std::string>{"B0", "B1"}));
  EXPECT_EQ(p.stages[StageId(1)].blocks, (std::vector<std::string>{"B2", "B3"}));
  EXPECT_EQ(plan(layers(0, 4), PipelinedExecution{2}, 3).stages[StageId(0)].blocks.size(), 1u);
  EXPECT_EQ(plan(layers(3, 4), ShardedExecution{2}, 3).stages[StageId(1)].blocks.size(), 1u);
  expect_refused({{"more stages than blocks", [] { plan(layers(), PipelinedExecution{5}, 3); },
                   "at most the 4 blocks of the model, got 5"},
                  {"one stage", [] { plan(layers(), PipelinedExecution{1}, 3); },
                   "at least two stages, got 1"}});
}

TEST(PipelineLayout, ChoosesDepthsByMessagesAndBudgets) {
  using Depths = std::vector<int64_t>;
  PipelinedExecution chosen{{}, Schedule::kAuto};
  const DeviceRates fast{.messages = 1e30, .latency = 0}, slow{.latency = 1e-3};
  EXPECT_EQ(in_flight(plan(layers(), chosen, 16, fast)), (Depths{4, 3, 2, 1}));
  EXPECT_EQ(in_flight(plan(layers(), chosen, 16, slow)), (Depths{7, 5, 3, 1}));
  const Ids<StageId, StagePlan> stages = plan(layers(), chosen, 16, slow).stages;
  for (const StagePlan& s : stages) EXPECT_GE(s.activation_bytes, kRows * kColumns * 4);
  chosen.activation_budgets = {5 * stages.front().activation_bytes, 1 << 30, 1 << 30, 1 << 30};
  EXPECT_EQ(in_flight(plan(layers(), chosen, 16, slow))[0], 5);
  expect_refused({{"budgets without a choice",
                   [] {
                     plan(layers(), PipelinedExecution{{}, Schedule::kGrouped, {1, 1, 1, 1}}, 3);
                   },
                   "activation_budgets: require the schedule auto, got grouped"}});
}

// The bytes that device 0 needs.
int64_t needed(const SessionOptions& session, const Options& step, std::vector<int64_t>& depths) {
  Ir ir;
  const Training t = build_training_for(session, ir, layers(), nn::Optimizer::sgd(), step);
  depths = in_flight(*t.pipeline);
  const Session s(ir, with_devices(session, t.devices));
  EXPECT_EQ(s.planned_bytes(0), s.measured_bytes(0));
  return exe::memory_needs(s.executable(), 0)[0].total_bytes;
}

TEST(PipelineLayout, AutoKeepsTheBudgetsOfDevices) {
  Options step{.strategy = PipelinedExecution{{}, Schedule::kInterleaved},
               .rates = {.latency = 1e-3},
               .accumulate = 16};
  SessionOptions session{.device = cpu_device({.threads = 1}),
                         .more_devices = std::vector(3, cpu_device({.threads = 1}))};
  std::vector<int64_t> depths;
  const int64_t min = needed(session, step, depths);
  step.strategy = PipelinedExecution{{}, Schedule::kAuto};
  const int64_t max = needed(session, step, depths);
  EXPECT_EQ(depths[0], 7);
  ASSERT_LT(min, max);
  session.device.memory = min;
  EXPECT_EQ(needed(session, step, depths), min);
  EXPECT_EQ(depths[0], 4);
  session.device.memory = (min + max) / 2;
  EXPECT_LE(needed(session, step, depths), (min + max) / 2);
  EXPECT_GT(depths[0], 4);
  EXPECT_LT(depths[0], 7);
  session.device.memory = min - 1;
  EXPECT_THROW(needed(session, step, depths), Error);
  EXPECT_EQ(depths[0], 4);
}

TEST(PipelineLayout, RefusalsOfBudgetsNameTheStages) {
  expect_refused({{"device 1 is too small",
                   [] {
                     Ir ir;
                     const Training t = build_training(
                         ir, layers(), nn::Optimizer::sgd(),
                         {.strategy = pipelined(Stage("B0", "B1"), "B2", "B3"), .accumulate = 4});
                     SessionOptions session{.device = cpu_device({.threads = 1})};
                     session.more_devices = {cpu_device({.memory = 1000}), cpu_device()};
                     open_session(ir, t, session);
                   },
                   "while planning stage 0 (B0+B1) on device 0, stage 1 (B2) on device 1, stage 2 "
                   "(B3) on device 2",
                   ErrorKind::kDoesNotFit},
                  {"devices for some stages only",
                   [] {
                     Ir ir;
                     const Training t = build_training(ir, layers(), nn::Optimizer::sgd(),
                                                       {.strategy = pipelined()});
                     open_session(ir, t, {.more_devices = {cpu_device()}});
                   },
                   "devices: a replica must have 4 for its stages, got 2; name them all or device "
                   "0 alone"}});
}

TEST(PipelineLayout, RatesAreRefusedWhereNothingUsesThem) {
  const auto with = [](const Strategy& strategy, const DeviceRates& rates) {
    return [=] {
      Ir ir;
      build_training(ir, layers(), nn::Optimizer::sgd(), {.strategy = strategy, .rates = rates});
    };
  };
  expect_refused({
      {"a resident step", with(resident(), {.flops = 1}),
       "rates.flops requires strategy with stages (it is resident)"},
      {"phases", with(phased(), {.copies = 1}),
       "rates.copies requires strategy with stages (it is phased)"},
      {"no copies", with(sharded(), {.copies = 0}),
       "rates.copies: must be a finite number above 0, got '0'"},
      {"a negative latency", with(pipelined(), {.latency = -1}),
       "rates.latency: must be a finite number of at least 0, got '-1'"},
  });
}

TEST(PipelineLayout, InferenceRefusesOptionsOfUpdates) {
  const auto with = [](const Options& options) {
    return [options] {
      Ir ir;
      build_inference(ir, layers(), options);
    };
  };
  with({.strategy = pipelined(), .accumulate = 3})();
  expect_refused({
      {"a norm", with({.max_grad_norm = 1}), "inference: max_grad_norm requires an optimizer"},
      {"a rate", with({.learning_rate = 0.1}), "inference: learning_rate"},
      {"recomputation", with({.recompute = Recompute::every_block()}), "inference: recompute"},
      {"state", with({.locations = {.optimizer = kRemote}}), "inference: locations.optimizer"},
      {"activations", with({.locations = {.activations = kRemote}}),
       "inference: locations.activations"},
      {"accumulators", with({.locations = {.accumulators = kRemote}}),
       "inference: locations.accumulators"},
      {"depths", with({.strategy = PipelinedExecution{{}, Schedule::kAuto}}),
       "inference: the schedule auto"},
  });
}

}  // namespace
}  // namespace sluice::train
