// Tests that the pipelines of docs/howto/fast_dataset.md do what the page describes. The page shows
// the code between the marks; times differ from machine to machine, so the tests count calls.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>

#include "sluice/data/dataset.h"
#include "sluice/data/feed_queues.h"
#include "sluice/data/loader.h"
#include "sluice/data/synthetic_digits.h"
#include "sluice/devices/cpu_device.h"
#include "sluice/train/fit.h"

namespace sluice {
namespace {

std::atomic<int64_t> calls = 0;

// Adds a brightness to the images of an element or of a batch.
data::Element brighten(data::Element e) {
  ++calls;
  for (float& pixel : e["input"].as<float>()) pixel += 0.1f;
  return e;
}

class FastDataset : public testing::Test {
 protected:
  void SetUp() override { calls = 0; }
  data::Samples samples_ = data::synthetic_digits(64, 1);
};

// Reads a pass to its end; returns the number of its elements.
int64_t read(const data::Dataset& dataset) {
  int64_t elements = 0;
  for (const data::Element& element : dataset) elements += element.arrays.empty() ? 0 : 1;
  return elements;
}

TEST_F(FastDataset, IsMeasured) {
  const data::Samples& samples = samples_;
  // --- Code of the page.
  const data::Dataset digits = data::from_samples(samples);
  const data::Dataset slow = digits.map(brighten).shuffle(1, 10000).repeat().batch(8);
  const auto result = data::dataset_benchmark(slow, {.epochs = 3, .elements = 100});
  const double samples_per_second = 8 * result.epochs.back().elements_per_second;
  fmt::print("{}\n", result.to_json());
  // --- End of the code.
  EXPECT_GT(samples_per_second, 0);
  EXPECT_EQ(result.produced, 300);
}

TEST_F(FastDataset, CacheCallsTheFunctionOnceForEachElement) {
  const data::Dataset digits = data::from_samples(samples_);
  // --- Code of the page.
  const data::Dataset cached = digits.map(brighten).cache().shuffle(1, 10000).repeat().batch(8);
  // --- End of the code.
  EXPECT_EQ(read(cached.take(3 * 8)), 3 * 8);
  EXPECT_EQ(calls, 64);
}

TEST_F(FastDataset, ParallelMapHasTheSameElements) {
  const data::Dataset digits = data::from_samples(samples_);
  // --- Code of the page.
  const data::Dataset parallel = digits.parallel_map(brighten, 4).shuffle(1, 10000).batch(8);
  // --- End of the code.
  data::Iterator expected = digits.map(brighten).shuffle(1, 10000).batch(8).iterate();
  for (const data::Element& element : parallel) {
    EXPECT_TRUE(element["input"].same_bits((*expected.next())["input"]));
  }
}

TEST_F(FastDataset, MapOfBatchesMakesFewerCalls) {
  const data::Dataset digits = data::from_samples(samples_);
  // --- Code of the page.
  const data::Dataset batches = digits.shuffle(1, 10000).batch(8).map(brighten);
  // --- End of the code.
  EXPECT_EQ(read(batches), 8);
  EXPECT_EQ(calls, 8);
}

TEST_F(FastDataset, PrefetchIsLast) {
  const data::Dataset digits = data::from_samples(samples_);
  // --- Code of the page.
  const data::Dataset fast =
      digits.cache().shuffle(1, 10000).repeat().parallel_map(brighten, 4).batch(8).prefetch(3);
  // --- End of the code.
  EXPECT_EQ(read(fast.take(16)), 16);
  EXPECT_EQ(to_string(check_static(fast)), "input (8, 28, 28) float32, labels (8,) int32");
}

TEST_F(FastDataset, ALoaderMakesSamplesByTheirNumbers) {
  const data::Dataset digits = data::from_samples(samples_);
  int64_t items = 0;
  const auto use = [&](const data::Element& item) {
    EXPECT_EQ(item["input"].shape(), Shape({8, 28, 28}));
    ++items;
  };
  // --- Code of the page.
  data::BatchLoader loader(digits.map(brighten), {.batch = 8, .seed = 1, .workers = 2});
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    loader.start_epoch(epoch);
    while (const data::Element* item = loader.next()) use(*item);
  }
  // --- End of the code.
  EXPECT_EQ(items, 3 * 8);
}

TEST_F(FastDataset, AQueueFeedsAProgram) {
  const data::Dataset batches = data::from_samples(samples_).shuffle(1, 10000).batch(8);
  // --- Code of the page.
  const auto queue = std::make_shared<data::InfeedQueue>(batches.repeat());
  const auto fed = train::infeed_benchmark(*queue, {.epochs = 3, .elements = 100});
  // --- End of the code.
  EXPECT_EQ(fed.produced, 300);
  EXPECT_EQ(fed.feed.used, 300);
}

TEST_F(FastDataset, AThreadReadsAheadOfATraining) {
  const data::Dataset digits = data::from_samples(samples_);
  const train::Network network =
      train::classifier(nn::Sequential(nn::Flatten(), nn::Linear(10)), f32_spec({8, 28, 28}));
  // --- Code of the page.
  train::Options options{.accumulate = 4, .prefetch = 8};
  auto model = train::training_model(network, options);
  train::DataLoader loader(options, digits.map(brighten), {.batch_size = 8});
  train::fit(model, loader, {.epochs = 3});
  // --- End of the code.
  EXPECT_EQ(model.updates(), 3 * 2);
}

}  // namespace
}  // namespace sluice
