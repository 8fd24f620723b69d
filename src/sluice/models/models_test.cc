// Every model of the registry trains at its test sizes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "sluice/base/error.h"
#include "sluice/data/loader.h"
#include "sluice/devices/cpu_device.h"
#include "sluice/models/model.h"
#include "sluice/session/session.h"
#include "sluice/train/step_arrays.h"

namespace sluice::models {
namespace {

class EveryModel : public testing::TestWithParam<size_t> {
 protected:
  const Model& model_ = all_models()[GetParam()];

  // Trains two steps of two micro-batches on generated samples. Returns the four losses.
  std::vector<float> losses(train::Strategy strategy) const {
    constexpr int64_t kAccumulate = 2;
    Ir ir;
    train::StepOptions options{.strategy = strategy, .accumulate = kAccumulate};
    if (strategy == train::Strategy::kPhased)
      options.locations.weights = options.locations.activations = train::Location::kRemote;
    const train::Training t =
        train::build_training(ir, model_.build(model_.test_sizes), nn::Optimizer::sgd(), options);
    Session session(ir, {.device = cpu_device({.threads = 1})});
    train::StepArrays arrays(t);
    const int64_t samples = kAccumulate * model_.test_sizes.micro_batch;
    const data::Dataset generated = model_.data->generate(samples, 1);
    data::DataLoader(generated, {.batch = samples}).fill(0, arrays.fields[0], arrays.fields[1]);
    std::vector<float> all;
    for (int64_t update = 0; update < 2; ++update) {
      arrays.seed(7, update);
      const HostTensors results = session.run(arrays.inputs(t), "train");
      for (const float loss : results[t.losses[0]].as<float>()) all.push_back(loss);
    }
    return all;
  }
};

TEST_P(EveryModel, TrainsWithTheSameLossesInEveryStrategy) {
  const std::vector<float> resident = losses(train::Strategy::kResident);
  ASSERT_EQ(resident.size(), 4u);
  for (const float loss : resident) EXPECT_TRUE(std::isfinite(loss)) << loss;
  EXPECT_NE(resident[0], resident[2]) << "the weights did not change";
  EXPECT_EQ(losses(train::Strategy::kPhased), resident);
}

TEST_P(EveryModel, IsFoundByItsName) {
  EXPECT_EQ(&find_model(model_.name), &model_);
  EXPECT_FALSE(model_.doc.empty());
}

INSTANTIATE_TEST_SUITE_P(Registry, EveryModel, testing::Range<size_t>(0, all_models().size()),
                         [](const auto& info) {
                           std::string name(all_models()[info.param].name);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(Models, HaveNamesOfTheirOwn) {
  std::set<std::string_view> names;
  for (const Model& m : all_models()) EXPECT_TRUE(names.insert(m.name).second) << m.name;
}

TEST(Models, AnUnknownNameIsRefusedWithAllNames) {
  try {
    find_model("mnist2");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kUsage);
    EXPECT_THAT(e.what(), testing::HasSubstr("model: must be one of mnist, mnist-rts"));
    EXPECT_THAT(e.what(), testing::HasSubstr("got 'mnist2'"));
  }
}

}  // namespace
}  // namespace sluice::models
