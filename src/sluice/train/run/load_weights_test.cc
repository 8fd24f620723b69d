#include "sluice/train/run/load_weights.h"

#include <gtest/gtest.h>

#include "sluice/base/test_refusals.h"
#include "sluice/devices/cpu_device.h"
#include "sluice/ops/ops.h"
#include "sluice/train/model.h"
#include "sluice/train/test_samples.h"

namespace sluice::train {
namespace {

struct TwoLayers : nn::Module {
  Tensor build(nn::Builder& b, const Tensor& x) const {
    const Tensor hidden = ops::relu(b.inlined("hidden", nn::Linear(8), x));
    return b.inlined("out", nn::Linear(test::kClasses), hidden);
  }
};

Network two_layers() {
  return classifier(TwoLayers(), f32_spec({test::kMicroBatch, test::kFeatures}));
}

TEST(TrainingModel, LoadsAPartOfAFileUnderOtherNames) {
  const Options options = {.learning_rate = 0.1, .session = {.device = cpu_device({.threads = 1})}};
  const std::string file = testing::TempDir() + "load_weights_test.safetensors";
  TrainingModel source = training_model(two_layers(), options, nn::Optimizer::adam());
  for (int call = 0; call < 3; ++call) source(test::samples(test::kMicroBatch, call));
  source.save(file);
  const auto value = [](TrainingModel& m, const char* path) { return m.weight(path).to_doubles(); };
  // The hidden layer starts from the file, the last layer anew.
  const LoadOptions hidden{.strict = false, .names = {{"out.*", ""}}};
  TrainingModel weights = training_model(two_layers(), options, nn::Optimizer::adam());
  const auto first = value(weights, "out.weight");
  LoadResult loaded = weights.load_weights(file, hidden);
  EXPECT_EQ(loaded.missing, (std::vector<std::string>{"out.bias", "out.weight"}));
  EXPECT_EQ(loaded.unused, std::vector<std::string>{});
  EXPECT_EQ(value(weights, "out.weight"), first);
  EXPECT_EQ(value(weights, "hidden.weight"), value(source, "hidden.weight"));
  const auto state = [](TrainingModel& m, const char* key) {
    return m.session().read(m.programs().state[key]).to_doubles();
  };
  EXPECT_EQ(state(weights, "hidden.bias.first_order"), std::vector<double>(8, 0.0));
  // load() reads the state of the optimizer, too.
  TrainingModel all = training_model(two_layers(), options, nn::Optimizer::adam());
  loaded = all.load(file, hidden);
  EXPECT_EQ(loaded.missing.size(), 8u);
  EXPECT_EQ(state(all, "hidden.bias.first_order"), state(source, "hidden.bias.first_order"));
  EXPECT_EQ(state(all, "out.bias.first_order"), std::vector<double>(3, 0.0));
  InferenceModel inference = inference_model(two_layers(), options);
  loaded = inference.load(file, hidden);
  EXPECT_EQ(loaded.missing, (std::vector<std::string>{"out.bias", "out.weight"}));
  expect_refused({{"strict", [&] { all.load(file, {.names = hidden.names}); },
                   "variable 'out.weight'", ErrorKind::kBadFile}});
}

}  // namespace
}  // namespace sluice::train
