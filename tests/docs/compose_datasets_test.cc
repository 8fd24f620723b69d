// Tests that the pipelines of docs/howto/compose_datasets.md do what the page describes. The page
// shows the code between the marks.
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <set>

#include "sluice/data/dataset.h"
#include "sluice/data/loader.h"
#include "sluice/data/synthetic_digits.h"
#include "sluice/devices/cpu_device.h"
#include "sluice/nn/layers.h"
#include "sluice/train/fit.h"

namespace sluice {
namespace {

class Compose : public testing::Test {
 protected:
  data::Samples samples_ = data::synthetic_digits(64, 1);
};

TEST_F(Compose, AnAugmentationDiffersByEpochAndRepeatsBySeed) {
  const data::Dataset digits = data::from_samples(samples_);
  // --- Code of the page.
  // Mirrors half of the images, and adds a brightness to each. Draws anew in each epoch.
  const auto augment = [](data::Element e, const data::ElementContext& c) {
    const bool mirrors = random_unit(c.key, 0) < 0.5f;
    const float brightness = 0.2f * random_unit(c.key, 1) - 0.1f;
    const auto pixels = e["input"].as<float>();
    for (size_t row = 0; mirrors && row < 28; ++row)
      std::reverse(pixels.begin() + 28 * row, pixels.begin() + 28 * (row + 1));
    for (float& pixel : pixels) pixel += brightness;
    return e;
  };
  const data::Dataset augmented = digits.map(augment, {.seed = 1});
  // --- End of the code.
  std::vector<HostTensor> items;
  const auto use = [&](const data::Element& item) { items.push_back(item["input"]); };
  // --- Code of the page.
  data::BatchLoader loader(augmented, {.batch = 8, .seed = 2, .workers = 2});
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    loader.start_epoch(epoch);
    while (const data::Element* item = loader.next()) use(*item);
  }
  // --- End of the code.
  ASSERT_EQ(items.size(), 24U);
  data::BatchLoader again(augmented, {.batch = 8, .seed = 2});
  for (const size_t item : {23, 9, 0}) {  // A run may resume at any item.
    again.start_epoch(static_cast<int64_t>(item) / 8, static_cast<int64_t>(item) % 8);
    EXPECT_TRUE((*again.next())["input"].same_bits(items[item]));
  }
  const auto sample_of = [&](const data::Dataset& dataset, uint64_t epoch) {
    return (*dataset.iterate(epoch).next())["input"];
  };
  EXPECT_FALSE(sample_of(augmented, 1).same_bits(sample_of(augmented, 0)));
  EXPECT_TRUE(sample_of(augmented, 1).same_bits(sample_of(augmented.repeat(), 1)));
  EXPECT_FALSE(sample_of(digits.map(augment, {.seed = 2}), 1).same_bits(sample_of(augmented, 1)));
}

TEST_F(Compose, ASplitIsFixedAndDisjoint) {
  const data::Dataset digits = data::from_samples(samples_);
  const auto augment = [](data::Element e, const data::ElementContext&) { return e; };
  // --- Code of the page.
  const std::vector<data::Dataset> parts = digits.split({0.9, 0.1}, 7);
  const data::Dataset training = parts[0].map(augment, {.seed = 1});
  const data::Dataset validation = parts[1];
  // --- End of the code.
  EXPECT_EQ(training.size(), 58);
  EXPECT_EQ(validation.size(), 6);
  std::set<std::vector<double>> images;
  for (const data::Element& e : training) images.insert(e["input"].to_doubles());
  for (const data::Element& e : validation) images.insert(e["input"].to_doubles());
  EXPECT_EQ(images.size(), 64U);
  data::BatchLoader loader(training, {.batch = 8, .workers = 2});
  EXPECT_EQ(loader.items(), 7);
}

TEST_F(Compose, WeightsBalanceClasses) {
  const data::Dataset digits = data::from_samples(samples_);
  // --- Code of the page.
  std::vector<double> weights;  // The digits 0 and 1 are five times as likely as others.
  for (const data::Element& e : digits)
    weights.push_back(e["labels"].as<int32_t>()[0] < 2 ? 5.0 : 1.0);
  const data::Dataset balanced = digits.weighted(weights, 3);
  // --- End of the code.
  const auto low_digits = [](const data::Dataset& dataset) {
    int64_t count = 0;
    for (const data::Element& e : dataset) count += e["labels"].as<int32_t>()[0] < 2 ? 1 : 0;
    return count;
  };
  EXPECT_EQ(balanced.size(), 64);
  EXPECT_GT(low_digits(balanced), 2 * low_digits(digits));
}

TEST_F(Compose, FieldsAreJoined) {
  const data::Dataset inputs = data::from_tensors(samples_.images);
  const data::Dataset classes = data::from_tensors(samples_.labels);
  // --- Code of the page.
  const data::Dataset pairs = data::zip({inputs, classes}).map([](data::Element e) {
    return data::Element{{"input", e[0]}, {"labels", e[1]}};
  });
  // --- End of the code.
  const data::Element last = *pairs.skip(63).iterate().next();
  EXPECT_EQ(last["labels"].as<int32_t>()[0], samples_.labels.as<int32_t>()[63]);
  EXPECT_EQ(data::BatchLoader(pairs, {.batch = 8}).items(), 8);
}

TEST_F(Compose, DatasetsAreJoined) {
  const data::Dataset digits = data::from_samples(samples_);
  const data::Dataset more = data::from_samples(data::synthetic_digits(32, 2));
  // --- Code of the page.
  const data::Dataset all = data::concat({digits, more});             // One after the other.
  const data::Dataset in_turn = data::interleave({digits, more}, 8);  // Blocks of 8 in turn.
  const data::Dataset mixed =                                         // 4 of 5 elements are digits.
      data::sample_from({digits.repeat(), more.repeat()}, {0.8, 0.2}, 5);
  // --- End of the code.
  EXPECT_EQ(all.size(), 96);
  EXPECT_EQ(in_turn.size(), 96);
  EXPECT_EQ(mixed.size(), data::kForever);
  data::BatchLoader loader(mixed, {.batch = 8, .shuffle = data::Shuffle::kNo, .workers = 2});
  EXPECT_NE(loader.next(), nullptr);
  // --- Code of the page.
  std::vector<double> shares(64, 0.8 / 64);   // The 64 digits have 0.8 of the draws,
  shares.insert(shares.end(), 32, 0.2 / 32);  // the 32 others 0.2.
  const data::Dataset epochs = data::concat({digits, more}).weighted(shares, 5, 48);
  // --- End of the code.
  EXPECT_EQ(data::BatchLoader(epochs, {.batch = 8}).items(), 6);
}

TEST_F(Compose, ElementsOfDifferentLengthsArePaddedOrBucketed) {
  const data::Dataset sentences = data::from_function(40, [](int64_t k) {
    HostTensor tokens({{1 + k * 7 % 30}, i32, {}});
    return data::Element{{"tokens", tokens}, {"labels", tokens}};
  });
  // --- Code of the page.
  const data::Dataset padded = sentences.pad(32, {{"tokens", 0}, {"labels", -100}});
  data::BatchLoader loader(padded, {.batch = 8, .seed = 1, .workers = 2});
  // --- End of the code.
  EXPECT_EQ(to_string(loader.sample_specs()), "tokens (32,) int32, labels (32,) int32");
  EXPECT_EQ((*loader.next())["labels"].shape(), (Shape{8, 32}));
  std::set<std::pair<int64_t, int64_t>> shapes;
  const auto run = [&](const data::Element& batch) {
    shapes.emplace(batch["tokens"].shape()[0], batch["tokens"].shape()[1]);
  };
  // --- Code of the page.
  const data::Dataset buckets = sentences.shuffle(1, 40).bucket_by_length(
      {.buckets = {{.length = 8, .batch = 16}, {.length = 16, .batch = 8}, {32, 4}},
       .fields = {{"tokens", 0}, {"labels", -100}}});
  for (const data::Element& batch : buckets) run(batch);  // (16, 8), (8, 16) or (4, 32).
  // --- End of the code.
  EXPECT_EQ(shapes, (std::set<std::pair<int64_t, int64_t>>{{8, 16}, {4, 32}}));
}

// Epoch e of fit() is epoch e of the map, in one run and in a run that continues another one.
TEST_F(Compose, FitNumbersTheEpochs) {
  std::mutex lock;
  std::multiset<int64_t> epochs;
  const data::Dataset counted = data::from_samples(samples_).map(
      [&](data::Element e, const data::ElementContext& c) {
        const std::lock_guard held(lock);
        epochs.insert(c.epoch);
        return e;
      },
      {.specs = data::from_samples(samples_).element_specs()});
  class Net : public nn::Module {
   public:
    Tensor build(nn::Builder& b, Tensor x) const {
      return fc_(b, ops::reshape(x, {x.shape()[0], 28 * 28}));
    }

   private:
    nn::Child<nn::Linear> fc_{*this, "fc", 10};
  };
  auto model = train::training_model(train::classifier(Net(), {{16, 28, 28}, f32}), {},
                                     nn::Optimizer::adam());
  train::DataLoader loader(model.options(), counted, {.batch_size = 16});
  train::fit(model, loader, {.epochs = 2, .show = train::Show::kNo});
  train::fit(model, loader, {.epochs = 1, .show = train::Show::kNo});
  for (const int64_t epoch : {0, 1, 2}) EXPECT_EQ(epochs.count(epoch), 64U) << epoch;
  EXPECT_EQ(epochs.size(), 3 * 64U);
}

}  // namespace
}  // namespace sluice
