// Every model of the registry trains at its test sizes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "sluice/base/error.h"
#include "sluice/base/test_refusals.h"
#include "sluice/data/loader.h"
#include "sluice/devices/cpu_device.h"
#include "sluice/exe/memory_needs.h"
#include "sluice/models/model.h"
#include "sluice/session/session.h"
#include "sluice/train/cut/cut.h"
#include "sluice/train/fit.h"
#include "sluice/train/step_arrays.h"

namespace sluice::models {
namespace {

class EveryModel : public testing::TestWithParam<size_t> {
 protected:
  const Model& model_ = all_models()[GetParam()];

  // Trains two steps of two micro-batches on generated samples. Returns all results of both.
  std::vector<float> results(train::Strategy strategy) const {
    constexpr int64_t kAccumulate = 2;
    Ir ir;
    train::Options options{.strategy = strategy, .accumulate = kAccumulate};
    if (std::holds_alternative<train::PhasedExecution>(strategy))
      options.locations.weights = options.locations.activations = train::Location::kRemote;
    const train::Training t =
        train::build_training(ir, model_.build(model_.test_sizes), nn::Optimizer::sgd(), options);
    Session session(ir, {.device = cpu_device({.threads = 1})});
    train::StepArrays arrays(t);
    const int64_t samples = kAccumulate * model_.test_sizes.micro_batch;
    const SampleSet generated = model_.data->generate(samples, 1, model_.test_sizes);
    arrays.fill(*data::BatchLoader(generated.dataset, {.batch = samples}).next());
    std::vector<float> all;
    for (int64_t update = 0; update < 2; ++update) {
      arrays.seed(7, update);
      const HostTensors step = session.run(arrays.inputs(t), "train");
      for (const auto* streams : {&t.losses, &t.predictions}) {
        for (const D2hStream& s : *streams)
          for (const float x : step[s].as<float>()) all.push_back(x);
      }
    }
    return all;
  }
};

TEST_P(EveryModel, TrainsWithTheSameResultsInEveryStrategy) {
  const std::vector<float> resident = results(train::resident());
  ASSERT_GE(resident.size(), 4u);
  for (const float x : resident) EXPECT_TRUE(std::isfinite(x)) << x;
  EXPECT_NE(resident[0], resident[resident.size() / 2]) << "the weights did not change";
  EXPECT_EQ(results(train::phased()), resident);
}

// A session proves its plan, too.
TEST_P(EveryModel, PeakIsNearTheLiveSetBoundAtTheUsualSizes) {
  Ir ir;
  train::build_training(ir, model_.build({}), nn::Optimizer::adamw(), {.accumulate = 2});
  const Session session(ir, {.device = cpu_device({.threads = 2})});
  const exe::MemoryNeeds needs = exe::memory_needs(session.executable())[0];
  EXPECT_LE(needs.ratio, 1.02) << needs.total_bytes << " bytes, bound " << needs.bound_bytes;
  EXPECT_EQ(needs.total_bytes, session.measured_bytes());
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

// Returns the elements of the variables of a model whose path begins with one of `prefixes`.
int64_t elements(const Model& model, const Sizes& sizes, const std::vector<std::string>& prefixes) {
  const train::NetworkGraph n = model.build(sizes).build(Ir(), nn::RunMode::kTrain);
  int64_t sum = 0;
  n.factories.for_each([&](const std::string& key, const nn::VariableFactory& factory) {
    for (const std::string& prefix : prefixes)
      sum += key.starts_with(prefix) ? factory.spec().elements() : 0;
  });
  return sum;
}

TEST(MnistCnn, HasTheBlocksAndWeightsOfDocument002) {
  const Model& model = find_model("mnist-cnn");
  EXPECT_EQ(elements(model, {}, {"layer1."}), 260);
  EXPECT_EQ(elements(model, {}, {"layer2."}), 5020);
  EXPECT_EQ(elements(model, {}, {"layer3."}), 82176);
  EXPECT_EQ(elements(model, {}, {"layer4."}), 2570);
  EXPECT_EQ(elements(model, {}, {""}), 90026);
  Ir ir;
  const train::Cut cut = train::cut(model.build({}).build(ir, nn::RunMode::kTrain));
  std::vector<std::string> blocks;
  for (const train::BlockGraph& b : cut.blocks) blocks.push_back(b.name);
  EXPECT_EQ(blocks, (std::vector<std::string>{"B1", "B2", "B3", "B4"}));
}

// The mean squared error takes targets of any size, and has the same bits in every strategy.
TEST(Mlp, LearnsARegressionInEveryStrategy) {
  const Model& model = find_model("mlp");
  Sizes sizes = model.test_sizes;
  sizes.sample = {3};
  sizes.classes = 2;
  sizes.loss = Loss::kMeanSquaredError;
  data::Samples set{HostTensor({{8, 3}, f32, {}}), HostTensor({{8, 2}, f32, {}}), "a test"};
  float next = 0;
  for (float& x : set.images.as<float>()) x = std::sin(next += 1);
  for (size_t i = 0; i < 16; ++i)
    set.labels.as<float>()[i] = 3 * set.images.as<float>()[i / 2 * 3 + i % 2] - 1;
  const auto losses = [&](const train::Strategy& strategy) {
    train::Options options{.strategy = strategy,
                           .accumulate = 2,
                           .output = train::Output::all(),
                           .session = {.device = cpu_device({.threads = 1})}};
    if (std::holds_alternative<train::PhasedExecution>(strategy))
      options.locations = train::TensorLocations::phased();
    train::TrainingModel t =
        train::training_model(model.build(sizes), options, nn::Optimizer::adam());
    EXPECT_EQ(t.programs().eval_predictions.at(0).spec.shape, Shape({sizes.eval_batch, 2}));
    const auto dataset = data::from_tensors({{"input", set.images}, {"target", set.labels}});
    return train::fit(t, dataset, {.calls = 100}).losses;
  };
  const std::vector<float> resident = losses(train::resident());
  EXPECT_LT(resident.back(), resident.front());
  EXPECT_EQ(losses(train::phased()), resident);
  EXPECT_EQ(losses(train::PipelinedExecution{2}), resident);
}

TEST(Mlp, ReadsItsSizesFromWeights) {
  const Model& model = find_model("mlp");
  Sizes sizes{.micro_batch = 3, .dropout = 0.5};
  model.read_sizes({{"fc.1.weight", {{16, 24}, f32}},
                    {"fc.0.weight", {{20, 16}, f32}},
                    {"fc.0.bias", {{16}, f32}},
                    {"fc.2.weight", {{24, 7}, f32}}},
                   sizes);
  EXPECT_EQ(sizes.layers, 3);
  EXPECT_EQ(sizes.width, 16);
  EXPECT_EQ(sizes.classes, 7);
  EXPECT_EQ(sizes.sample, Shape{20});
  EXPECT_EQ(sizes.micro_batch, 3);
  EXPECT_EQ(sizes.dropout, 0.5);
  expect_refused(
      {{"nothing",
        [&] {
          model.read_sizes({{"conv.weight", {{3, 3}, f32}}}, sizes);
        },
        "fc.0.weight: must be there, got 1 other tensors; give a file of a perceptron"},
       {"rank",
        [&] {
          model.read_sizes({{"fc.0.weight", {{3}, f32}}}, sizes);
        },
        "fc.0.weight: must be a matrix with the inputs or features of the layer before as rows, "
        "got (3,)"},
       {"no chain",
        [&] {
          model.read_sizes({{"fc.0.weight", {{3, 4}, f32}}, {"fc.1.weight", {{5, 4}, f32}}}, sizes);
        },
        "fc.1.weight: must be a matrix with the 4 features of the layer before as rows, got "
        "(5, 4)"}});
  EXPECT_EQ(sizes.classes, 7);
}

// The numbers of MLPerf Tiny's Keras model and of torchvision's resnet18 with the other first
// convolution and 10 classes. The running means and variances of batch norm count.
TEST(ResNet, HasTheWeightsOfItsOrigin) {
  EXPECT_EQ(elements(find_model("resnet8"), {}, {""}), 78'666);
  EXPECT_EQ(elements(find_model("resnet18"), {}, {""}), 11'173'962 + 2 * 4800);
  expect_refused({{"width", [] { find_model("resnet18").build({.width = 100}); },
                   "resnet18: width, the channels of the last stage, must be a multiple of 8, got "
                   "100"}});
}

// Every size changes the plan's weights or its ops.
TEST(MlpSkip, UsesEverySize) {
  const Sizes small = find_model("mlp-skip").test_sizes;
  const auto shape = [](const Sizes& sizes) {
    const train::NetworkGraph n =
        find_model("mlp-skip").build(sizes).build(Ir(), nn::RunMode::kTrain);
    int64_t elements = 0;
    for (const Tensor& w : n.graph.args().values_flat()) elements += w.spec().shape.elements();
    return std::pair(elements, n.graph.graph().ops().size());
  };
  Sizes other = small;
  other.layers = 8;
  EXPECT_NE(shape(other), shape(small));
  other = small;
  other.width = 17;
  EXPECT_NE(shape(other), shape(small));
  other = small;
  other.dropout = 0;
  EXPECT_NE(shape(other), shape(small));
  for (const int64_t layers : {2, 3}) {
    other = small;
    other.layers = layers;
    EXPECT_LT(shape(other), shape(small));
  }
  other.layers = 1;
  expect_refused({{"a single layer", [&] { find_model("mlp-skip").build(other); },
                   "mlp-skip: layers must be at least 2, the first and the last, got 1"}});
}

// Both heads use one weight, in blocks of their own.
TEST(MlpSkip, HasTwoLossesAndATiedWeight) {
  Ir ir;
  const Model& model = find_model("mlp-skip");
  const train::NetworkGraph n = model.build(model.test_sizes).build(ir, nn::RunMode::kTrain);
  const train::Cut cut = train::cut(n);
  EXPECT_EQ(cut.uses("classes"), 2);
  std::vector<std::string> losses;
  for (const train::Loss& loss : n.results.losses) losses.push_back(loss.name);
  EXPECT_EQ(losses, (std::vector<std::string>{"loss", "aside"}));
  std::vector<std::string> blocks;
  for (const train::BlockGraph& b : cut.blocks) blocks.push_back(b.name);
  EXPECT_EQ(blocks, (std::vector<std::string>{"in", "res.0", "res.1", "res.2", "aside", "res.3",
                                              "res.4", "out"}));
}

}  // namespace
}  // namespace sluice::models
