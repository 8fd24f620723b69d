// Several threads that call one model.

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <thread>

#include "sluice/devices/cpu_device.h"
#include "sluice/nn/layers.h"
#include "sluice/ops/activations.h"
#include "sluice/train/fit.h"
#include "sluice/train/model.h"
#include "sluice/train/test_samples.h"

namespace sluice::train {
namespace {

using namespace test;

constexpr int kThreads = 8;
constexpr int kCalls = 30;  // Number of calls of each thread.

class ServedNet : public nn::Module {
 public:
  Tensor build(nn::Builder& b, Tensor x) const {
    x = ops::relu(hidden_(b, x));
    x = b.inlined("dropout", nn::Dropout(0.25), x);
    return out_(b, x);
  }

 private:
  nn::Child<nn::Linear> hidden_{*this, "hidden", 8};
  nn::Child<nn::Linear> out_{*this, "out", 3};
};

TrainingModel served_model() {
  Options options;
  options.session.device = cpu_device({.threads = 2});
  return training_model(classifier(ServedNet(), f32_spec({4, 5})), options, nn::Optimizer::adam());
}

data::Element served_sample(int64_t k) {
  HostTensor x(f32_spec({5}));
  for (size_t i = 0; i < 5; ++i) x.as<float>()[i] = static_cast<float>((k * 7 + 3 * i) % 11) / 11;
  return {{"input", x},
          {"labels", HostTensor::of<int32_t>({}, i32, {static_cast<int32_t>(k % 3)})}};
}

data::Element served_batch(int64_t k) {
  HostTensor x(f32_spec({4, 5}));
  for (size_t i = 0; i < 20; ++i) x.as<float>()[i] = static_cast<float>((k + 5 * i) % 13) / 13;
  return {{"input", x}};
}

void each_thread(const std::function<void(int)>& run) {
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) threads.emplace_back(run, t);
  for (std::thread& t : threads) t.join();
}

// The first calls also race to compile.
TEST(ModelThreads, EightThreadsGetTheResultsOfTheirSamples) {
  TrainingModel training = served_model();
  InferenceModel alone = inference_model(training);
  std::vector<data::Element> expected;
  for (int t = 0; t < kThreads; ++t) expected.push_back(alone(served_batch(t)));
  TrainingModel other = served_model();
  InferenceModel model = inference_model(other);
  std::atomic<int> wrong{0};
  each_thread([&](int t) {
    InferenceModel handle = model;
    for (int i = 0; i < kCalls; ++i) {
      const data::Element y = handle(served_batch(t));
      wrong += !y.arrays[0].same_bits(expected[static_cast<size_t>(t)].arrays[0]);
    }
  });
  EXPECT_EQ(wrong, 0);
}

TEST(ModelThreads, FitsOfCopiesRunOneAfterTheOther) {
  const auto dataset = data::from_function(40, served_sample);
  const FitOptions once{.epochs = 1, .show = Show::kNo};
  TrainingModel alone = served_model();
  for (int t = 0; t < kThreads; ++t) fit(alone, dataset, once);
  TrainingModel model = served_model();
  InferenceModel served = inference_model(model);
  each_thread([&](int) {
    TrainingModel copy = model;
    fit(copy, dataset, once);
    EXPECT_EQ(served(served_batch(0)).arrays.size(), 1u);
  });
  EXPECT_EQ(model.updates(), alone.updates());
  EXPECT_TRUE(model.weight("out.weight").same_bits(alone.weight("out.weight")));
}

TEST(ModelThreads, CallsThatTrainQueue) {
  TrainingModel model = served_model();
  const auto batch = [](int64_t k) {
    data::Element samples = served_batch(k);
    samples.names.push_back("labels");
    samples.arrays.push_back(HostTensor::of<int32_t>({4}, i32, {0, 1, 2, 0}));
    return samples;
  };
  each_thread([&](int t) {
    TrainingModel copy = model;
    for (int i = 0; i < kCalls; ++i) {
      copy.set_learning_rate(0.001);
      copy(batch(t));
      EXPECT_GT(copy.updates(), 0);
    }
  });
  EXPECT_EQ(model.updates(), kThreads * kCalls);
}

}  // namespace
}  // namespace sluice::train
