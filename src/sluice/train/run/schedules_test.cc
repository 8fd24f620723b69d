#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "sluice/base/test_refusals.h"
#include "sluice/devices/cpu_device.h"
#include "sluice/nn/layers.h"
#include "sluice/train/fit.h"
#include "sluice/train/test_samples.h"

namespace sluice::train {
namespace {

struct ScheduledNet : nn::Module {
  Tensor build(nn::Builder& b, Tensor x) const { return out(b, x); }
  nn::Child<nn::Linear> out{*this, "out", test::kClasses};
};

Network scheduled() { return classifier(ScheduledNet(), f32_spec({2, test::kFeatures})); }

// A network whose evaluation has a prediction and no loss.
struct UnlabelledNet : ScheduledNet {
  Results build(nn::Builder& b, const Inputs& in) const {
    const Tensor x = ScheduledNet::build(b, in["input"]);
    if (in.mode() == nn::RunMode::kEvaluate) return {.predictions = {{"logits", x}}};
    return {.losses = {cross_entropy(x, in["labels"])}};
  }
};

Options streamed_rate() {
  return {.learning_rate = StreamedRate{}, .session = {.device = cpu_device({.threads = 1})}};
}

DataLoader four_calls(const Options& options) {
  return {options, test::dataset(8), {.batch_size = 2}};
}

FitResult fit_epochs(TrainingModel& model, int64_t epochs, const LearningRateSchedule& schedule) {
  DataLoader data = four_calls(model.options());
  InferenceModel test = inference_model(model);
  DataLoader tests(test.options(), test::dataset(6), {.batch_size = 2});
  return fit(model, data,
             {.epochs = epochs,
              .schedule = schedule,
              .validation_model = &test,
              .validation_data = &tests});
}

// The threshold lets only the first validation be an improvement, so that each later one reduces
// the rate.
TEST(Schedules, AValidationReducesTheRateOnAPlateau) {
  for (const Plateau::Mode mode : {Plateau::Mode::kMin, Plateau::Mode::kMax}) {
    const LearningRateSchedule schedule{
        .decay = Decay::kPlateau,
        .peak = 0.5,
        .factor = 0.25,
        .plateau = {.mode = mode,
                    .patience = 0,
                    .threshold = 1000,
                    .threshold_mode = Plateau::ThresholdMode::kAbsolute}};
    TrainingModel by_hand = training_model(scheduled(), streamed_rate());
    DataLoader data = four_calls(streamed_rate());
    for (const double rate : {0.5, 0.5, 0.125, 0.03125, 0.0078125}) {
      by_hand.set_learning_rate(rate);
      fit(by_hand, data);
    }
    TrainingModel model = training_model(scheduled(), streamed_rate());
    EXPECT_EQ(fit_epochs(model, 5, schedule).validations.size(), 5u);
    const auto expected = by_hand.weight("out.weight").to_doubles();
    EXPECT_EQ(model.weight("out.weight").to_doubles(), expected);
    // The state belongs to the model.
    TrainingModel continued = training_model(scheduled(), streamed_rate());
    fit_epochs(continued, 2, schedule);
    fit_epochs(continued, 3, schedule);
    EXPECT_EQ(continued.weight("out.weight").to_doubles(), expected);
  }
}

TEST(Schedules, AModeIsThatOfItsValue) {
  const auto trained = [](Plateau::Mode mode, double threshold) {
    TrainingModel model = training_model(scheduled(), streamed_rate());
    fit_epochs(model, 4,
               {.decay = Decay::kPlateau,
                .peak = 0.5,
                .factor = 0.25,
                .plateau = {.mode = mode,
                            .patience = 0,
                            .threshold = threshold,
                            .threshold_mode = Plateau::ThresholdMode::kAbsolute}});
    return model.weight("out.weight").to_doubles();
  };
  // A loss that falls by less than 1 is a plateau for this threshold, and not for 0.
  EXPECT_NE(trained(Plateau::Mode::kMin, 1), trained(Plateau::Mode::kMin, 0));
}

TEST(Schedules, AFunctionOfTheProgramIsASchedule) {
  const LearningRateSchedule schedule{.decay = Decay::kFunction, .function = [](int64_t step) {
                                        return step % 2 == 0 ? 0.25 : 0.5;
                                      }};
  TrainingModel model = training_model(scheduled(), streamed_rate());
  DataLoader data = four_calls(streamed_rate());
  fit(model, data, {.calls = 4, .schedule = schedule});
  TrainingModel by_hand = training_model(scheduled(), streamed_rate());
  for (const double rate : {0.25, 0.5, 0.25, 0.5}) {
    by_hand.set_learning_rate(rate);
    fit(by_hand, data, {.calls = 1});
  }
  EXPECT_EQ(by_hand.weight("out.weight").to_doubles(), model.weight("out.weight").to_doubles());
}

// The code of docs/howto/learning_rates.md.
TEST(Schedules, ThePageShowsThisCode) {
  TrainingModel model = training_model(scheduled(), streamed_rate());
  DataLoader data = four_calls(streamed_rate());
  fit(model, data,
      {.epochs = 2, .schedule = LearningRateSchedule{.decay = Decay::kCosine, .steps = 8}});
  const LearningRateSchedule schedule{.decay = Decay::kStep, .peak = 0.5, .period = 100};
  model.set_learning_rate(schedule.at(model.updates()));

  const std::vector<double> validation_losses = {1, 0.5, 0.6, 0.6, 0.6, 0.6};
  const LearningRateSchedule plateau{.decay = Decay::kPlateau, .plateau = {.patience = 3}};
  PlateauState state;
  for (const double loss : validation_losses) plateau.observe(state, loss);
  model.set_learning_rate(plateau.at(model.updates(), state));

  EXPECT_EQ(state, (PlateauState{.best = 0.5, .factor = 0.1}));

  const Network network = scheduled();
  Options options = streamed_rate();
  options.learning_rate = 1e-2;
  const data::Element batch = test::samples(2);
  TrainingModel decayed =
      training_model(network, options, nn::Optimizer::adamw({.weight_decay = nn::streamed(0.1)}));
  decayed(batch);
  decayed.set_optimizer(nn::Optimizer::adamw({.weight_decay = nn::streamed(0.05)}), 1e-3);
  decayed(batch);  // With the other weight decay, and without compiling.

  const OptimizerFunction optimizer = [](int64_t update) {
    return nn::Optimizer::sgd({.momentum = nn::streamed(update < 100 ? 0.5 : 0.9)});
  };
  TrainingModel cycled = training_model(network, options, optimizer(0));
  fit(cycled, data, {.optimizer = optimizer});
}

TEST(Schedules, Refusals) {
  TrainingModel model = training_model(scheduled(), streamed_rate());
  const auto refused = [&](const LearningRateSchedule& schedule, const char* text) {
    return Refusal{text,
                   [&model, schedule] {
                     DataLoader data = four_calls(streamed_rate());
                     fit(model, data, {.schedule = schedule});
                   },
                   text};
  };
  const LearningRateSchedule plateau{.decay = Decay::kPlateau};
  expect_refused({
      refused(plateau, "fit: schedule.decay plateau requires a validation, got none"),
      refused({.minimum = 0.1}, "fit: schedule.minimum requires decay "),
      refused({.decay = Decay::kFunction, .function = [](int64_t) { return -1.0; }},
              "the rate must be a finite float32 of at least 0, got -1"),
  });
  const Network without_loss{UnlabelledNet(),
                             {{"input", f32_spec({2, 6})}, {"labels", i32_spec({2})}}};
  for (const bool smaller : {true, false}) {
    TrainingModel other = training_model(without_loss, streamed_rate());
    LearningRateSchedule schedule = plateau;
    if (!smaller) schedule.plateau.mode = Plateau::Mode::kMax;
    expect_refused({{"a value", [&] { fit_epochs(other, 1, schedule); },
                     smaller ? "fit: schedule.plateau.mode min requires a loss of the validation"
                             : "fit: schedule.plateau.mode max requires an accuracy of the "
                               "validation"}});
  }
}

}  // namespace
}  // namespace sluice::train
