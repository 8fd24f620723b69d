#include "sluice/train/options.h"

#include <gtest/gtest.h>

namespace sluice::train {
namespace {

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

}  // namespace
}  // namespace sluice::train
