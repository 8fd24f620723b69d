// fit() on a model with an infeed has the results of fit() on arrays, in every strategy.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <thread>

#include "sluice/base/numbers/slices.h"
#include "sluice/base/test_refusals.h"
#include "sluice/data/feed_queues.h"
#include "sluice/data/test_wait.h"
#include "sluice/report/summary.h"
#include "sluice/train/fit.h"
#include "sluice/train/run/test_feeds.h"

namespace sluice::train {
namespace {

using namespace test_feeds;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

// All that two equal trainings have in common.
struct Fitted {
  std::vector<HostTensor> variables;
  FitResult result;
  Run run;
};

Fitted state_after(TrainingModel& model, FitResult result) {
  Fitted fitted{{}, std::move(result), model.run()};
  model.session().each_variable(
      [&](const std::string&, HostTensor t) { fitted.variables.push_back(std::move(t)); });
  return fitted;
}

Fitted fitted(const Options& options, const data::Dataset& samples, const FitOptions& fit_options,
              const DataLoaderOptions& loader_options) {
  TrainingModel model = training_model(feed_network(), options, nn::Optimizer::adamw());
  DataLoader data(options, samples, loader_options);
  FitResult result = fit(model, data, fit_options);
  EXPECT_EQ(model.session().planned_bytes(), model.session().measured_bytes());
  return state_after(model, std::move(result));
}

void expect_equal(const Fitted& found, const Fitted& expected, const std::string& name) {
  EXPECT_EQ(found.result.losses, expected.result.losses) << name;
  EXPECT_EQ(found.result.calls, expected.result.calls) << name;
  EXPECT_EQ(found.result.loss, expected.result.loss) << name;
  EXPECT_EQ(found.result.accuracy, expected.result.accuracy) << name;
  EXPECT_EQ(found.run, expected.run) << name;
  ASSERT_EQ(found.variables.size(), expected.variables.size()) << name;
  for (size_t i = 0; i < found.variables.size(); ++i)
    EXPECT_TRUE(found.variables[i].same_bits(expected.variables[i])) << name << " " << i;
}

constexpr DataLoaderOptions kShuffled{
    .batch_size = kMicroBatch, .shuffle = data::Shuffle::kYes, .seed = 5};

TEST(FitFeeds, AllStrategiesHaveTheResultsOfArrays) {
  for (const int replicas : {1, 2}) {
    // Two calls an epoch, and samples that do not fill a call.
    const data::Dataset samples = dataset(2 * 3 * 4 * kMicroBatch * replicas + 7);
    for (auto [name, options] : forms(4, replicas)) {
      const FitOptions epochs{.epochs = 3};
      const Fitted expected = fitted(options, samples, epochs, kShuffled);
      options.prefetch = 2;
      expect_equal(fitted(options, samples, epochs, kShuffled), expected, name);
    }
  }
}

// Returns sample `i` of some samples.
data::Element sample(const data::Element& all, int64_t i) {
  HostTensor x(f32_spec({kFeatures})), label(i32_spec({}));
  const auto row = Slices(all["input"].as<float>(), all["input"].shape()[0])[i];
  std::ranges::copy(row, x.as<float>().begin());
  label.as<int32_t>()[0] = at(all["labels"].as<int32_t>(), i);
  return {{"input", std::move(x)}, {"labels", std::move(label)}};
}

TEST(FitFeeds, DatasetsOfAllLengthsHaveTheResultsOfArrays) {
  const data::Element all = test::samples(45);
  const data::Dataset ends = dataset(45);
  const data::Dataset tuple = data::from_tensors({all["input"], all["labels"]});
  const data::Dataset augmented =
      ends.map(data::Dataset::EpochMap([](data::Element e, const data::ElementContext& context) {
        e.arrays[0].as<float>()[0] += static_cast<float>(context.epoch);
        return e;
      }));
  const data::Dataset unknown = data::from_generator([all] {
    return [all, n = int64_t{0}]() mutable -> std::optional<data::Element> {
      return n == 45 ? std::nullopt : std::optional(sample(all, n++));
    };
  });
  DataLoaderOptions workers = kShuffled;
  workers.workers = 2;
  const DataLoaderOptions ordered{.batch_size = kMicroBatch};
  struct Case {
    const char* name;
    data::Dataset samples;
    FitOptions fit;
    DataLoaderOptions loader;
  };
  const std::vector<Case> cases{{"workers", ends, {.epochs = 3}, workers},
                                {"tuple", tuple, {.epochs = 2}, kShuffled},
                                {"epochs differ", augmented, {.epochs = 3}, kShuffled},
                                {"epochs differ, workers", augmented, {.calls = 7}, workers},
                                {"unknown length", unknown, {.epochs = 3}, ordered},
                                {"unknown length, calls", unknown, {.calls = 7}, ordered},
                                {"endless", ends.repeat(), {.calls = 9}, ordered}};
  for (const Case& c : cases) {
    Options options = on_three_devices({.accumulate = 4});
    const Fitted expected = fitted(options, c.samples, c.fit, c.loader);
    EXPECT_GE(expected.result.calls, 7 - (std::string(c.name) == "tuple" ? 1 : 0)) << c.name;
    for (const int prefetch : {1, 3, 20}) {
      options.prefetch = prefetch;
      expect_equal(fitted(options, c.samples, c.fit, c.loader), expected, c.name);
    }
  }
}

// The position of the run is that of samples that were trained on, not of those read ahead.
TEST(FitFeeds, CallsOfFitContinueEachOther) {
  const data::Dataset samples = dataset(45);
  Options options = on_three_devices({.accumulate = 4});
  const Fitted expected = fitted(options, samples, {.calls = 9}, kShuffled);
  options.prefetch = 20;
  TrainingModel model = training_model(feed_network(), options, nn::Optimizer::adamw());
  DataLoader data(options, samples, kShuffled);
  FitResult sum;
  for (int64_t calls = 0; calls < 9; calls += 3) {
    std::vector<int64_t> positions;
    const FitResult result = fit(model, data, {.calls = 3, .after_call = [&](const CallReport&) {
                                                 positions.push_back(model.run().epoch_samples);
                                                 return true;
                                               }});
    for (size_t i = 0; i < positions.size(); ++i) {
      // 5 calls an epoch of 8 samples each.
      EXPECT_EQ(positions[i] % 40, (calls + static_cast<int64_t>(i) + 1) * 8 % 40);
    }
    sum.losses.insert(sum.losses.end(), result.losses.begin(), result.losses.end());
    sum.calls += result.calls;
    sum.loss = result.loss;
    sum.accuracy = result.accuracy;
  }
  expect_equal(state_after(model, std::move(sum)), expected, "parts");
}

TEST(FitFeeds, ValidationsRunBetweenCalls) {
  const data::Dataset samples = dataset(45);
  Options options = on_three_devices({.accumulate = 4});
  std::vector<std::vector<double>> all;
  for (const int prefetch : {0, 3}) {
    options.prefetch = prefetch;
    TrainingModel model = training_model(feed_network(), options, nn::Optimizer::adamw());
    InferenceModel test = inference_model(model);
    DataLoader data(options, samples, kShuffled);
    DataLoader tests(test.options(), dataset(12), {.batch_size = kMicroBatch});
    const FitResult result = fit(
        model, data,
        {.epochs = 2, .validation_model = &test, .validation_data = &tests, .validate_every = 2});
    all.emplace_back();
    for (const Evaluation& v : result.validations) all.back().push_back(v.metrics.at(0).value);
    EXPECT_EQ(all.back().size(), 5u);
  }
  EXPECT_EQ(all[0], all[1]);
}

// During a call and after it, the thread fills the ring for the next calls.
TEST(FitFeeds, SamplesAreMadeAheadOfTheirCall) {
  constexpr int64_t kCalls = 5;
  for (const int prefetch : {1, 4, 6}) {
    Options options = on_three_devices({.accumulate = 4});
    options.prefetch = prefetch;
    std::atomic<int64_t> made{0};
    const data::Dataset samples = dataset(kCalls * 4 * kMicroBatch).map([&](data::Element e) {
      ++made;
      return e;
    });
    TrainingModel model = training_model(feed_network(), options);
    DataLoader data(options, samples, {.batch_size = kMicroBatch});
    made = 0;
    fit(model, data, {.after_call = [&](const CallReport& report) {
          const int64_t ahead = std::min<int64_t>(report.call * 4 + prefetch, kCalls * 4);
          return test::wait_until([&] { return made >= ahead * kMicroBatch; });
        }});
    EXPECT_EQ(model.updates(), kCalls) << prefetch;
  }
}

// Samples that each take some milliseconds to make.
data::Dataset slow(int64_t samples, int64_t milliseconds) {
  return dataset(samples).map([=](data::Element e) {
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    return e;
  });
}

std::string progress(const Options& options, const data::Dataset& samples) {
  TrainingModel model = training_model(feed_network(), options);
  DataLoader data(options, samples, {.batch_size = kMicroBatch});
  testing::internal::CaptureStderr();
  fit(model, data, {.show = Show::kProgress});
  return testing::internal::GetCapturedStderr();
}

TEST(FitFeeds, TheProgressNamesASourceThatStalls) {
  Options options = on_three_devices({.accumulate = 2});
  EXPECT_THAT(progress(options, slow(16, 5)),
              ContainsRegex("Loss:.*% [|] Waits for data:[0-9]+%: 100%"));
  options.prefetch = 2;
  EXPECT_THAT(progress(options, slow(16, 5)),
              ContainsRegex("Loss:.*% [|] Waits for feed 'samples':[0-9]+%: 100%"));
}

// The device has more work than the source.
TEST(FitFeeds, TheProgressDoesNotNameAFastSource) {
  for (const int prefetch : {0, 2}) {
    Options options = on_three_devices({.accumulate = 2});
    options.prefetch = prefetch;
    TrainingModel model = training_model(feed_network(), options);
    DataLoader data(options, dataset(16), {.batch_size = kMicroBatch});
    testing::internal::CaptureStderr();
    fit(model, data,
        {.after_call =
             [](const CallReport&) {
               std::this_thread::sleep_for(std::chrono::milliseconds(50));
               return true;
             },
         .show = Show::kProgress});
    EXPECT_THAT(testing::internal::GetCapturedStderr(), Not(HasSubstr("Waits for")));
  }
}

// The report of a run counts the elements of the feed.
TEST(FitFeeds, TheFeedIsInTheStatistics) {
  Options options = on_three_devices({.accumulate = 4});
  options.prefetch = 3;
  TrainingModel model = training_model(feed_network(), options);
  DataLoader data(options, slow(24, 1), {.batch_size = kMicroBatch});
  fit(model, data);
  const std::vector<report::FeedReport> feeds = model.session().feed_statistics();
  ASSERT_EQ(feeds.size(), 1u);
  EXPECT_EQ(feeds[0].name, "samples");
  EXPECT_EQ(feeds[0].used, 12);
  EXPECT_EQ(feeds[0].moved, 12);
  EXPECT_GT(feeds[0].waits_for_host.seconds, 0);
}

TEST(FitFeeds, AnErrorOfTheSourceEndsTheTraining) {
  std::atomic<bool> fails{true};
  const data::Dataset samples = dataset(40).map([&](data::Element e) {
    if (fails && e.arrays[1].as<int32_t>()[0] == 2 && e.arrays[0].as<float>()[0] < 0)
      fail(ErrorKind::kIo, "the disk is gone");
    return e;
  });
  for (auto [name, options] : forms(2, 1)) {
    options.device_iterations = 1;
    options.prefetch = 3;
    fails = true;
    TrainingModel model = training_model(feed_network(), options, nn::Optimizer::adamw());
    DataLoader data(options, samples, {.batch_size = kMicroBatch});
    expect_refused(
        {{name, [&] { fit(model, data, {.calls = 20}); }, "the disk is gone", ErrorKind::kIo}});
    EXPECT_LT(model.updates(), 10) << name;
    // The source works again: the training continues at the failed item.
    fails = false;
    const int64_t left = 20 - model.updates();
    EXPECT_EQ(fit(model, data, {.calls = left}).calls, left) << name;
    EXPECT_EQ(model.run().samples, 20 * 4) << name;
  }
}

// A stop neither hangs nor leaves a thread that calls the user's functions.
TEST(FitFeeds, AStopReleasesTheSource) {
  for (auto [name, options] : forms(2, 2)) {
    options.device_iterations = 1;
    options.prefetch = 5;
    TrainingModel model = training_model(feed_network(), options);
    auto made = std::make_shared<std::atomic<int64_t>>(0);
    const std::weak_ptr<std::atomic<int64_t>> watched = made;
    {
      DataLoader data(options, dataset(400).map([made = std::move(made)](data::Element e) {
        ++*made;
        return e;
      }),
                      {.batch_size = kMicroBatch});
      const FitResult result =
          fit(model, data, {.after_call = [](const CallReport& r) { return r.call < 3; }});
      EXPECT_TRUE(result.stopped);
      EXPECT_EQ(result.calls, 3);
    }
    EXPECT_TRUE(watched.expired()) << name;
    EXPECT_EQ(model.run().epoch_samples, 3 * 2 * 2 * kMicroBatch);
  }
}

TEST(FitFeeds, AWrongLabelIsNamedByItsRow) {
  for (const int prefetch : {0, 7}) {
    data::Element all = test::samples(40);
    all.arrays[1].as<int32_t>()[21] = 9;
    Options options = on_three_devices({.accumulate = 2});
    options.prefetch = prefetch;
    TrainingModel model = training_model(feed_network(), options);
    DataLoader data(options,
                    data::from_tensors({{"input", all["input"]}, {"labels", all["labels"]}}),
                    kShuffled);
    expect_refused({{"label", [&] { fit(model, data); }, "; label 9 in row 21 is outside 0..2",
                     ErrorKind::kDiverged}});
  }
}

TEST(FitFeeds, Refusals) {
  Options options = on_three_devices({.accumulate = 2});
  options.prefetch = 2;
  TrainingModel model = training_model(feed_network(), options);
  const auto with = [&](const std::function<void(Options&)>& change) {
    Options o = options;
    change(o);
    return [o] { training_model(feed_network(), o).compile(); };
  };
  expect_refused({
      {"samples", [&] { model(test::samples(4)); },
       "train: the fields input, labels must come from the infeed, got "},
      {"remainder",
       [&] {
         DataLoader data(options, dataset(10),
                         {.batch_size = kMicroBatch, .remainder = data::Remainder::kKeep});
         fit(model, data);
       },
       "fit: a loader of a model with prefetch must drop the remainder of an epoch, got one that "
       "keeps it"},
      {"field",
       [&] {
         DataLoader data(options, data::from_tensors({{"input", test::samples(8)["input"]}}),
                         {.batch_size = kMicroBatch});
         fit(model, data);
       },
       "fit: 2 samples must have the field 'labels' (2,) int32, got samples of input (6,) float32"},
      {"range", with([](Options& o) { o.prefetch = 256; }),
       "training: prefetch: must be an integer from 0 to 255, got '256'"},
      {"both", with([](Options& o) {
         o.infeed = std::make_shared<data::InfeedQueue>(dataset(8).batch(kMicroBatch));
       }),
       "training: prefetch must be 0 with an infeed, which has a depth of its own, got 2"},
  });
  EXPECT_EQ(model.updates(), 0);
}

}  // namespace
}  // namespace sluice::train
