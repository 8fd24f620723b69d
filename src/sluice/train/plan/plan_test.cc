#include "sluice/train/plan/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sluice/base/test_refusals.h"
#include "sluice/devices/cpu_device.h"
#include "sluice/nn/layers.h"
#include "sluice/ops/activations.h"
#include "sluice/session/session.h"
#include "sluice/train/test_samples.h"

namespace sluice::train {
namespace {

using namespace test;
using testing::HasSubstr;

constexpr int64_t kPlanWidth = 48;

// Four blocks. Adam's state is twice the weights.
class PlanNet : public nn::Module {
 public:
  Results build(nn::Builder& b, const Inputs& in) const {
    Tensor x = ops::gelu(first_(b, in["input"]));
    for (const auto* hidden : {&second_, &third_}) x = ops::gelu((*hidden)(b, x));
    x = out_(b, x);
    if (in.mode() == nn::RunMode::kEvaluate) return {.predictions = {{"logits", x}}};
    return {.losses = {cross_entropy(x, in["labels"])}, .predictions = {{"logits", x}}};
  }

 private:
  nn::Child<nn::Linear> first_{*this, "first", kPlanWidth};
  nn::Child<nn::Linear> second_{*this, "second", kPlanWidth};
  nn::Child<nn::Linear> third_{*this, "third", kPlanWidth};
  nn::Child<nn::Linear> out_{*this, "out", kClasses};
};

Network plan_network() {
  return {PlanNet(),
          {{.name = "input", .spec = f32_spec({kMicroBatch, kFeatures})},
           {.name = "labels", .spec = i32_spec({kMicroBatch})}}};
}

Options automatic_within(int64_t memory) {
  return {.accumulate = 2,
          .offload = automatic,
          .session = {.device = cpu_device({.memory = memory, .threads = 1})}};
}

TrainingModel model_within(int64_t memory) {
  return training_model(plan_network(), automatic_within(memory), nn::Optimizer::adam());
}

DoesNotFit refusal(const std::function<void()>& act) {
  try {
    act();
  } catch (const DoesNotFit& e) {
    return e;
  }
  ADD_FAILURE() << "it fits";
  return {"", {}};
}

TEST(PlanTraining, ABudgetChoosesTheTensorsThatLeaveTheDevice) {
  TrainingModel free = model_within(-1);
  EXPECT_EQ(free.offload().reason, OffloadReason::kNoBudget);
  EXPECT_EQ(free.offload().why(), "device memory has no budget");
  const int64_t needed = free.session().planned_bytes();
  TrainingModel whole = model_within(needed);
  EXPECT_EQ(whole.offload().reason, OffloadReason::kFits);
  EXPECT_EQ(whole.offload().locations, TensorLocations());
  EXPECT_EQ(whole.offload().tried.size(), 1u);

  TrainingModel tight = model_within(needed - 1);
  const OffloadDecision& decision = tight.offload();
  EXPECT_EQ(decision.reason, OffloadReason::kNeeded);
  EXPECT_EQ(to_string(decision.locations), "optimizer");
  ASSERT_EQ(decision.tried.size(), 2u);
  EXPECT_EQ(decision.tried[0].name, "none");
  EXPECT_EQ(decision.tried[0].device_bytes, needed);
  EXPECT_FALSE(decision.tried[0].fits);
  EXPECT_EQ(decision.tried[1].name, "optimizer");
  EXPECT_TRUE(decision.tried[1].fits);
  const int64_t planned = tight.session().planned_bytes();
  EXPECT_LT(planned, needed);
  EXPECT_EQ(decision.tried[1].saved_bytes, needed - planned);
  EXPECT_GT(decision.tried[1].added_seconds, 0);
  EXPECT_EQ(decision.why().find(fmt::format("without it, device 0 (cpu) needs {} bytes; optimizer "
                                            "saves {} bytes for ",
                                            needed, needed - planned)),
            0u)
      << decision.why();
  for (int64_t call = 0; call < 3; ++call) {
    const data::Element batch = samples(2 * kMicroBatch, call);
    EXPECT_TRUE(free(batch)["loss"].same_bits(tight(batch)["loss"]));
  }
}

TEST(PlanTraining, EachProgramIsCompiledOnce) {
  const auto compiled = [](Options options) {
    options.session.print_after = "offsets";
    testing::internal::CaptureStderr();
    TrainingModel model = training_model(plan_network(), options, nn::Optimizer::adam());
    const size_t tried = model.offload().tried.size();
    const std::string text = testing::internal::GetCapturedStderr();
    size_t count = 0;
    for (size_t at = 0; (at = text.find("--- after offsets", at)) != text.npos; ++at) ++count;
    EXPECT_EQ(count, tried);
    return tried;
  };
  EXPECT_EQ(compiled(automatic_within(-1)), 1u);
  const int64_t needed = model_within(-1).session().planned_bytes();
  EXPECT_EQ(compiled(automatic_within(needed - 1)), 2u);
}

TEST(PlanTraining, ARefusalHasItsFiguresAsFields) {
  const int64_t needed = model_within(-1).session().planned_bytes();
  const DoesNotFit none = refusal([] { model_within(64).compile(); });
  EXPECT_EQ(none.memory().device, 0);
  EXPECT_EQ(none.memory().smallest_budget(), needed);
  EXPECT_EQ(none.memory().budget_bytes, 64);
  EXPECT_LE(none.memory().bound_bytes, needed);
  EXPECT_GT(none.memory().bound_bytes, 0);
  EXPECT_EQ(none.memory().peak_objects.at(0).kind, "variable");
  EXPECT_EQ(none.remedy(), "");

  Options phases = automatic_within(-1);
  phases.strategy = phased();
  TrainingModel in_phases = training_model(plan_network(), phases, nn::Optimizer::adam());
  EXPECT_EQ(to_string(in_phases.offload().locations), "optimizer,weights,activations");
  const int64_t budget = in_phases.session().planned_bytes();
  const DoesNotFit with_phases = refusal([&] { model_within(budget).compile(); });
  EXPECT_EQ(with_phases.remedy(),
            "strategy phased with optimizer,weights,activations in remote memory");
  EXPECT_THAT(with_phases.what(), HasSubstr(with_phases.remedy() + " fits"));
  phases.session.device.memory = budget;
  training_model(plan_network(), phases, nn::Optimizer::adam()).compile();
}

TEST(PlanTraining, ARefusalOfStagesNamesThem) {
  Options stages = automatic_within(64);
  stages.strategy = pipelined(Stage("first", "second"), Stage("third", "out"));
  const DoesNotFit e =
      refusal([&] { training_model(plan_network(), stages, nn::Optimizer::adam()).compile(); });
  EXPECT_THAT(e.what(), HasSubstr("while planning stage 0 (first+second) on device 0"));
}

TEST(PlanTraining, LocationsThatAreGivenStay) {
  Options options = automatic_within(-1);
  options.locations.activations = Location::kRemote;
  const PlannedPrograms first = plan_training(plan_network(), nn::Optimizer::adam(), options);
  EXPECT_EQ(to_string(first.offload.locations), "activations");
  options.session.device.memory = first.offload.tried.at(0).device_bytes - 1;
  const PlannedPrograms more = plan_training(plan_network(), nn::Optimizer::adam(), options);
  EXPECT_EQ(to_string(more.offload.locations), "optimizer,activations");
  EXPECT_EQ(more.options.offload, Offload::kGiven);
  EXPECT_EQ(more.options.locations, more.offload.locations);
}

TEST(PlanInference, WeightsLeaveTheDevice) {
  Options options = automatic_within(-1);
  options.accumulate = 1;
  const PlannedPrograms free = plan_inference(plan_network(), options);
  const int64_t needed = free.offload.tried.at(0).device_bytes;
  options.session.device.memory = needed - 1;
  InferenceModel model = inference_model(plan_network(), options);
  EXPECT_EQ(to_string(model.offload().locations), "weights");
  EXPECT_LT(model.session().planned_bytes(), needed);
  EXPECT_THAT(model.offload().why(), testing::EndsWith(" ms a call"));
  options.session.device.memory = 64;
  EXPECT_EQ(refusal([&] { inference_model(plan_network(), options).compile(); }).remedy(), "");
}

TEST(PlanTraining, ProgramsWithoutASessionRefuseAutomatic) {
  const Options options{.offload = automatic};
  Ir ir;
  expect_refused(
      {{"training", [&] { build_training(ir, plan_network(), nn::Optimizer::sgd(), options); },
        "training: offload must be given for programs without a session, got automatic"},
       {"inference", [&] { build_inference(Ir(), plan_network(), options); },
        "inference: offload must be given for programs without a session, got automatic"},
       {"programs that exist",
        [&] {
          const Training programs = build_training(ir, plan_network(), nn::Optimizer::sgd(), {});
          training_model(plan_network(), options, ir, programs);
        },
        "model: offload must be given for programs that exist, got automatic"}});
}

}  // namespace
}  // namespace sluice::train
