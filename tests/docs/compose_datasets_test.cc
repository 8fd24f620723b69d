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
