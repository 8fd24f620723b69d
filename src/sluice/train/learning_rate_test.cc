#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "sluice/base/test_refusals.h"
#include "sluice/train/options/schedule_table.h"

namespace sluice::train {
namespace {

using Rates = std::vector<double>;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

void expect_rates(const LearningRateSchedule& schedule, const Rates& rates) {
  EXPECT_NO_THROW(check_schedule("a schedule", schedule));
  for (size_t step = 0; step < rates.size(); ++step)
    EXPECT_NEAR(schedule.at(static_cast<int64_t>(step)), rates[step], 1e-12 * rates[step]) << step;
}

// Four steps of warm-up to 0.8, then five steps of decay. PyTorch 2.15 has the same rates with
// SequentialLR of LinearLR(start_factor=0.25, total_iters=3) and, from step 4 on, of LinearLR(1, 0,
// total_iters=5) or CosineAnnealingLR(T_max=5). Step 10 is after the end.
TEST(LearningRateSchedule, HasTheRatesOfPyTorch) {
  const double linear[] = {0.2, 0.4, 0.6, 0.8, 0.8, 0.64, 0.48, 0.32, 0.16, 0.0, 0.0};
  const double cosine[] = {0.2,          0.4,          0.6,          0.8, 0.8, 0.7236067977,
                           0.5236067977, 0.2763932023, 0.0763932023, 0.0, 0.0};
  const LearningRateSchedule schedule{Decay::kLinear, 0.8, 4, 9};
  LearningRateSchedule waves = schedule;
  waves.decay = Decay::kCosine;
  for (int64_t step = 0; step < 11; ++step) {
    EXPECT_NEAR(schedule.at(step), linear[step], 1e-9) << step;
    EXPECT_NEAR(waves.at(step), cosine[step], 1e-9) << step;
  }
}

TEST(LearningRateSchedule, DecaysToItsMinimum) {
  // nanoGPT's get_lr() with learning_rate 1e-3, min_lr 1e-4, warmup_iters 0, lr_decay_iters 4.
  const double cosine[] = {1e-3, 8.681980515e-4, 5.5e-4, 2.318019485e-4, 1e-4, 1e-4};
  LearningRateSchedule schedule{Decay::kCosine, 1e-3, 0, 4, 1e-4};
  for (int64_t step = 0; step < 6; ++step)
    EXPECT_NEAR(schedule.at(step), cosine[step], 1e-12) << step;
  schedule.decay = Decay::kLinear;
  EXPECT_NEAR(schedule.at(1), 7.75e-4, 1e-12);
  EXPECT_NEAR(schedule.at(9), 1e-4, 1e-12);
}

TEST(LearningRateSchedule, ConstantRatesRiseInTheWarmUpAlone) {
  const LearningRateSchedule schedule{Decay::kConstant, 0.5, 2, 10};
  EXPECT_EQ(schedule.at(0), 0.25);
  for (const int64_t step : {1, 2, 9, 100}) EXPECT_EQ(schedule.at(step), 0.5);
}

// CosineAnnealingWarmRestarts(T_0, T_mult, eta_min) of PyTorch 2.15; with a warm-up as above.
TEST(LearningRateSchedule, CosinesRestart) {
  expect_rates(
      {.decay = Decay::kRestarts, .peak = 0.8, .minimum = 0.01, .period = 3, .multiplier = 2},
      {0.8, 0.6025, 0.2075000000000001, 0.8, 0.7470800344948534, 0.6025, 0.405, 0.2075000000000001,
       0.06291996550514671, 0.8, 0.786540701384182, 0.7470800344948534});
  expect_rates({.decay = Decay::kRestarts, .peak = 0.5, .period = 4},
               {0.5, 0.42677669529663687, 0.25, 0.07322330470336313, 0.5, 0.42677669529663687, 0.25,
                0.07322330470336313, 0.5});
  LearningRateSchedule warm{.decay = Decay::kRestarts,
                            .peak = 0.8,
                            .warmup_steps = 2,
                            .minimum = 0.01,
                            .period = 3,
                            .multiplier = 2};
  expect_rates(warm, {0.4, 0.8, 0.8, 0.6025, 0.2075000000000001, 0.8, 0.7470800344948534, 0.6025,
                      0.405, 0.2075000000000001, 0.06291996550514671, 0.8});
  // The length of a cycle would overflow.
  warm.multiplier = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(warm.at(5), 0.8);
  EXPECT_NEAR(warm.at(1000), 0.8, 1e-12);
  EXPECT_NEAR(warm.at(std::numeric_limits<int64_t>::max()), 0.01, 1e-12);
}

// StepLR(step_size, gamma) and MultiStepLR(milestones, gamma).
TEST(LearningRateSchedule, FallsInSteps) {
  expect_rates({.decay = Decay::kStep, .peak = 0.8, .period = 3, .factor = 0.3},
               {0.8, 0.8, 0.8, 0.24, 0.24, 0.24, 0.072, 0.072, 0.072, 0.021599999999999998});
  expect_rates({.decay = Decay::kStep, .peak = 0.8, .warmup_steps = 2, .period = 3, .factor = 0.3},
               {0.4, 0.8, 0.8, 0.8, 0.8, 0.24, 0.24, 0.24, 0.072, 0.072});
  expect_rates({.decay = Decay::kStep, .peak = 0.8, .minimum = 0.1, .period = 3, .factor = 0.3},
               {0.8, 0.8, 0.8, 0.24, 0.24, 0.24, 0.1, 0.1, 0.1, 0.1});
  expect_rates({.decay = Decay::kMilestones, .peak = 0.8, .factor = 0.2, .milestones = {2, 5, 6}},
               {0.8, 0.8, 0.16000000000000003, 0.16000000000000003, 0.16000000000000003,
                0.03200000000000001, 0.006400000000000002, 0.006400000000000002});
}

// OneCycleLR(max_lr=0.8, total_steps). PyTorch raises an error after the last step.
TEST(LearningRateSchedule, RunsOneCycle) {
  expect_rates({.decay = Decay::kOneCycle, .peak = 0.8, .steps = 10},
               {0.03200000000000003, 0.41600000000000004, 0.8, 0.7603877056107791,
                0.6493965231598104, 0.48900961754903144, 0.3109935824509686, 0.1506066768401896,
                0.03961549438922103, 3.2e-06, 3.2e-06});
  LearningRateSchedule phases{
      .decay = Decay::kOneCycle,
      .peak = 0.8,
      .steps = 11,
      .one_cycle = {
          .pct_start = 0.4, .div_factor = 10, .final_div_factor = 100, .three_phase = true}};
  expect_rates(phases,
               {0.07999999999999996, 0.22305153090346763, 0.5385186764259497, 0.7756900025855681,
                0.7460781688626612, 0.47321660940678906, 0.1739567898005629, 0.07923909710396793,
                0.05555426392165758, 0.01839941877242376, 0.0008});
  phases.one_cycle.anneal = OneCycle::Anneal::kLinear;
  expect_rates(
      phases, {0.08, 0.2917647058823529, 0.5035294117647059, 0.7152941176470587, 0.6729411764705884,
               0.4611764705882354, 0.24941176470588244, 0.07505000000000002, 0.05030000000000001,
               0.025550000000000003, 0.0007999999999999952, 0.0008});
  // Runs of so few steps that a phase has no length are finite, where PyTorch divides by zero.
  for (int64_t steps = 0; steps < 12; ++steps) {
    phases.steps = steps;
    for (int64_t step = 0; step < 12; ++step) EXPECT_TRUE(std::isfinite(phases.at(step)));
  }
}

// LambdaLR of 1 / sqrt((step - warmup + timescale) / timescale), as in Hugging Face's
// get_inverse_sqrt_schedule.
TEST(LearningRateSchedule, FallsWithTheInverseSquareRoot) {
  expect_rates({.decay = Decay::kInverseSqrt, .peak = 0.8, .warmup_steps = 4},
               {0.2, 0.4, 0.6, 0.8, 0.8, 0.7155417527999327, 0.653197264742181, 0.6047431568147635,
                0.565685424949238, 0.5333333333333333});
  expect_rates({.decay = Decay::kInverseSqrt, .peak = 0.8, .warmup_steps = 2, .period = 5},
               {0.4, 0.8, 0.8, 0.7302967433402215, 0.6761234037828133, 0.6324555320336759,
                0.5962847939999439, 0.565685424949238, 0.5393598899705937, 0.5163977794943223});
}

TEST(LearningRateSchedule, IsAFunctionOfTheProgram) {
  expect_rates({.decay = Decay::kFunction,
                .function = [](int64_t step) { return 1.0 / static_cast<double>(step + 1); }},
               {1, 0.5, 1.0 / 3, 0.25});
}

struct PlateauCase {
  LearningRateSchedule schedule;
  Rates values;
  Rates rates;  ///< After each value.
  PlateauState last;
};

// ReduceLROnPlateau of PyTorch 2.15: its rates after each step(), best, num_bad_epochs and
// cooldown_counter at the end.
TEST(LearningRateSchedule, FallsOnPlateaus) {
  using enum Plateau::ThresholdMode;
  const auto schedule = [](double peak, double factor, double minimum, const Plateau& plateau) {
    return LearningRateSchedule{.decay = Decay::kPlateau,
                                .peak = peak,
                                .minimum = minimum,
                                .factor = factor,
                                .plateau = plateau};
  };
  const Plateau::Mode max = Plateau::Mode::kMax;
  const PlateauCase cases[] = {
      {schedule(0.8, 0.5, 0.15, {.patience = 2, .threshold = 0.01, .cooldown = 1}),
       {1.0, 0.9, 0.9, 0.95, 0.899, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9},
       {0.8, 0.8, 0.8, 0.8, 0.4, 0.4, 0.4, 0.4, 0.2, 0.2, 0.2, 0.2},
       {0.9, 2, 0, 0.25}},
      {schedule(0.8, 0.3, 0, {.patience = 0, .threshold = 0.01, .threshold_mode = kAbsolute}),
       {1.0, 0.9, 0.895, 0.88, 0.875, kNan, 0.8, 0.81, 0.82, 0.83},
       {0.8, 0.8, 0.24, 0.24, 0.072, 0.021599999999999998, 0.021599999999999998,
        0.006479999999999999, 0.0019439999999999995, 0.0005831999999999999},
       {0.8, 0, 0, 0.3 * 0.3 * 0.3 * 0.3 * 0.3 * 0.3}},
      {schedule(0.8, 0.1, 0, {.mode = max, .patience = 1, .threshold = 0.01}),
       {50, 60, 60.5, 61, 60, 70, 70.1, 70.3, 70.2},
       {0.8, 0.8, 0.8, 0.8, 0.8, 0.8, 0.8, 0.08000000000000002, 0.08000000000000002},
       {70, 1, 0, 0.1}},
      {schedule(0.8, 0.1, 0,
                {.mode = max,
                 .patience = 1,
                 .threshold = 1,
                 .threshold_mode = kAbsolute,
                 .cooldown = 2}),
       {50, 60, 60.5, 61.5, 60, 70, 70.1, 70.3, 70.2, 70.2},
       {0.8, 0.8, 0.8, 0.8, 0.8, 0.8, 0.8, 0.08, 0.08, 0.08},
       {70, 0, 0, 0.1}},
      // The second reduction would be 9e-9.
      {schedule(1e-7, 0.1, 0, {.patience = 0}),
       {1, 1, 1, 1},
       {1e-7, 1e-8, 1e-8, 1e-8},
       {1, 0, 0, 0.1}}};
  for (const PlateauCase& c : cases) {
    check_schedule("a schedule", c.schedule);
    PlateauState state;
    for (size_t i = 0; i < c.values.size(); ++i) {
      c.schedule.observe(state, c.values[i]);
      EXPECT_NEAR(c.schedule.at(7, state), c.rates[i], 1e-12 * c.rates[i]) << i;
    }
    EXPECT_NEAR(state.factor, c.last.factor, 1e-15);
    state.factor = c.last.factor;
    EXPECT_EQ(state, c.last);
  }
}

TEST(LearningRateSchedule, PlateausScaleTheRateAfterTheWarmUp) {
  const LearningRateSchedule schedule{
      .decay = Decay::kPlateau, .peak = 0.8, .warmup_steps = 4, .plateau = {.patience = 0}};
  PlateauState state{.best = 1, .factor = 0.5};
  EXPECT_EQ(schedule.at(1, state), 0.4);
  EXPECT_EQ(schedule.at(4, state), 0.4);
  EXPECT_EQ(schedule.at(4), 0.8);
  const PlateauState before = state;
  LearningRateSchedule({.decay = Decay::kCosine}).observe(state, 5);
  EXPECT_EQ(state, before);
  schedule.observe(state, kNan);
  EXPECT_EQ(state.best, 1);
  EXPECT_NEAR(state.factor, 0.05, 1e-15);
}

TEST(LearningRateSchedule, WrongOptionsAreOneError) {
  const auto refused = [](const LearningRateSchedule& schedule, const std::string& text) {
    return Refusal{text, [schedule] { check_schedule("fit: schedule", schedule); }, text};
  };
  using enum Decay;
  expect_refused({
      refused({.peak = -1}, "fit: schedule.peak: must be a finite float32 of at least 0, got -1"),
      refused({.warmup_steps = -1}, "fit: schedule.warmup_steps: must be an integer from 0 to "),
      refused({.decay = kLinear, .peak = 0.5, .minimum = 0.6},
              "fit: schedule.minimum: must be at most the learning rate, 0.5, got 0.6"),
      refused({.minimum = 0.01},
              "fit: schedule.minimum requires decay linear, cosine, restarts, step, milestones, "
              "inverse_sqrt or plateau (it is constant)"),
      refused({.decay = kLinear, .minimum = -1}, "fit: schedule.minimum: must be "),
      refused({.decay = kOneCycle, .warmup_steps = 3},
              "fit: schedule.warmup_steps requires decay other than one_cycle and function (it is "
              "one_cycle)"),
      refused({.decay = kRestarts}, "fit: schedule.decay restarts requires period (it is absent)"),
      refused({.decay = kStep}, "fit: schedule.decay step requires period (it is absent)"),
      refused({.decay = kStep, .period = 0}, "fit: schedule.period: must be an integer from 1 to "),
      refused({.decay = kLinear, .period = 3},
              "fit: schedule.period requires decay restarts, step or inverse_sqrt (it is linear)"),
      refused({.decay = kInverseSqrt},
              "fit: schedule.decay inverse_sqrt requires period or warmup_steps (both are absent)"),
      refused({.decay = kStep, .period = 3, .multiplier = 2},
              "fit: schedule.multiplier requires decay restarts (it is step)"),
      refused({.decay = kRestarts, .period = 3, .multiplier = 0},
              "fit: schedule.multiplier: must be an integer from 1 to "),
      refused({.decay = kStep, .period = 3, .factor = 1}, "fit: schedule.factor: must be "),
      refused({.decay = kCosine, .factor = 0.5},
              "fit: schedule.factor requires decay step, milestones or plateau (it is cosine)"),
      refused({.decay = kMilestones},
              "fit: schedule.decay milestones requires milestones (it is none)"),
      refused({.decay = kMilestones, .warmup_steps = 3, .milestones = {3, 5}},
              "fit: schedule.milestones: must be ascending and above the 3 warm-up steps, got 3, "
              "5"),
      refused({.decay = kMilestones, .milestones = {4, 4}}, "fit: schedule.milestones: must be "),
      refused({.decay = kStep, .period = 3, .milestones = {4}},
              "fit: schedule.milestones requires decay milestones (it is step)"),
      refused({.one_cycle = {.div_factor = 2}},
              "fit: schedule.one_cycle.div_factor requires decay one_cycle (it is constant)"),
      refused({.decay = kOneCycle, .one_cycle = {.pct_start = 1}},
              "fit: schedule.one_cycle.pct_start: must be "),
      refused({.decay = kOneCycle, .one_cycle = {.final_div_factor = 0.5}},
              "fit: schedule.one_cycle.final_div_factor: must be "),
      refused({.plateau = {.patience = 2}},
              "fit: schedule.plateau.patience requires decay plateau (it is constant)"),
      refused({.decay = kPlateau, .plateau = {.patience = -1}},
              "fit: schedule.plateau.patience: must be an integer from 0 to "),
      refused({.decay = kPlateau, .plateau = {.threshold = 1}},
              "fit: schedule.plateau.threshold: must be below 1 if it is relative, got 1"),
      refused({.decay = kFunction}, "fit: schedule.decay function requires function (it is none)"),
      refused({.function = [](int64_t) { return 1.0; }},
              "fit: schedule.function requires decay function (it is constant)"),
  });
}

// A text of each member that is not its default, with the decay that has it.
TEST(LearningRateSchedule, IsData) {
  LearningRateSchedule read;
  const OptionTable<LearningRateSchedule>& table = schedule_table();
  const auto set = [&](const std::string& name, const OptionTexts& texts) {
    table.set(table.find(name), read, texts, OptionNames::kMembers);
  };
  set("decay", {"restarts"});
  set("peak", {"0.5"});
  set("warmup_steps", {"3"});
  set("steps", {"20"});
  set("minimum", {"0.25"});
  set("period", {"4"});
  set("multiplier", {"2"});
  const LearningRateSchedule want{.decay = Decay::kRestarts,
                                  .peak = 0.5,
                                  .warmup_steps = 3,
                                  .steps = 20,
                                  .minimum = 0.25,
                                  .period = 4,
                                  .multiplier = 2};
  EXPECT_EQ(table.print(read), table.print(want));
  read = {};
  set("decay", {"milestones"});
  set("factor", {"0.5"});
  set("milestones", {"4", "7"});
  EXPECT_EQ(read.milestones, (std::vector<int64_t>{4, 7}));
  EXPECT_EQ(read.factor, 0.5);
  EXPECT_EQ(table.find("milestones").print(read), "4, 7");
  read = {};
  set("decay", {"one_cycle"});
  set("one_cycle.pct_start", {"0.5"});
  set("one_cycle.div_factor", {"2"});
  set("one_cycle.final_div_factor", {"3"});
  set("one_cycle.anneal", {"linear"});
  set("one_cycle.three_phase", {"true"});
  EXPECT_EQ(read.one_cycle, (OneCycle{0.5, 2, 3, OneCycle::Anneal::kLinear, true}));
  read = {};
  set("decay", {"plateau"});
  for (const auto& [name, text] :
       std::vector<std::pair<std::string, std::string>>{{"mode", "max"},
                                                        {"patience", "3"},
                                                        {"threshold", "0.5"},
                                                        {"threshold_mode", "absolute"},
                                                        {"cooldown", "2"},
                                                        {"epsilon", "0.25"}})
    set("plateau." + name, {text});
  EXPECT_EQ(read.plateau,
            (Plateau{Plateau::Mode::kMax, 3, 0.5, Plateau::ThresholdMode::kAbsolute, 2, 0.25}));
}

}  // namespace
}  // namespace sluice::train
