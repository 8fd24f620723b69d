// Training on queues has the bits of training on arrays, in every strategy.

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <functional>
#include <thread>

#include "sluice/base/test_refusals.h"
#include "sluice/data/feed_queues.h"
#include "sluice/data/test_wait.h"
#include "sluice/devices/cpu_device.h"
#include "sluice/exe/executable.h"
#include "sluice/train/fit.h"
#include "sluice/train/model.h"
#include "sluice/train/pipeline.h"
#include "sluice/train/run/test_feeds.h"
#include "sluice/train/test_samples.h"

namespace sluice::train {
namespace {

using namespace test_feeds;

// A queue of `n` micro-batches. Calls `making`, if it is given, for each one.
std::shared_ptr<data::InfeedQueue> queue(
    int64_t n, int depth = 3, std::function<void()> making = [] {}) {
  return std::make_shared<data::InfeedQueue>(
      dataset(n * kMicroBatch)
          .batch(kMicroBatch)
          .map([making = std::move(making)](data::Element e) {
            making();
            return e;
          }),
      data::InfeedQueueOptions{.prefetch_depth = depth});
}

// The weights, and all losses and predictions of some updates.
struct Trained {
  std::vector<HostTensor> weights;
  std::vector<HostTensor> results;
};

Trained train(const Options& options, int64_t updates) {
  TrainingModel model = training_model(feed_network(), options, nn::Optimizer::adamw());
  const int64_t each = model.call_size().samples();
  Trained trained;
  for (int64_t call = 0; call < updates / options.device_iterations; ++call) {
    const data::Element found = options.infeed ? model() : model(samples(each, call * each));
    trained.results.insert(trained.results.end(), found.arrays.begin(), found.arrays.end());
  }
  EXPECT_EQ(model.updates(), updates);
  EXPECT_EQ(model.session().planned_bytes(), model.session().measured_bytes());
  model.session().each_variable(
      [&](const std::string&, HostTensor t) { trained.weights.push_back(std::move(t)); });
  return trained;
}

void expect_same(const std::vector<HostTensor>& a, const std::vector<HostTensor>& b,
                 const std::string& name) {
  ASSERT_EQ(a.size(), b.size()) << name;
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(a[i].same_bits(b[i])) << name << " " << i;
}

TEST(TrainingFeeds, AllStrategiesHaveTheBitsOfArrays) {
  for (const int replicas : {1, 2}) {
    const Options arrays = forms(4, replicas)[0].options;
    const std::vector<HostTensor> expected = train(arrays, 6).weights;
    for (auto [name, options] : forms(4, replicas)) {
      const Trained by_arrays = train(options, 6);
      options.infeed = queue(6 * 4 * replicas);
      const Trained by_queue = train(options, 6);
      expect_same(by_queue.weights, expected, name);
      expect_same(by_queue.results, by_arrays.results, name);
    }
  }
}

// Phases read all images before the first label, so the ring of the labels holds those of all.
TEST(TrainingFeeds, LabelsThatLagBehindDoNotBlock) {
  constexpr int64_t kMicroBatches = 64;
  for (const int replicas : {1, 2}) {
    for (auto [name, options] : forms(kMicroBatches, replicas)) {
      if (!std::holds_alternative<PhasedExecution>(*options.strategy)) continue;
      options.device_iterations = 1;
      const std::vector<HostTensor> expected = train(options, 2).weights;
      options.infeed = queue(2 * kMicroBatches * replicas);
      expect_same(train(options, 2).weights, expected, name);
      TrainingModel model = training_model(feed_network(), options);
      const auto& rings = model.session().executable().feeds.front().rings;
      ASSERT_EQ(rings.size(), 2u);
      EXPECT_EQ(rings[0].slots, 3) << name;
      EXPECT_EQ(rings[1].slots, kMicroBatches - 1 + 3) << name;
    }
  }
}

// A queue without an end fills the slots that the plan has, and no more.
TEST(TrainingFeeds, TheQueueRunsAheadByTheSlotsOfThePlan) {
  for (const int depth : {1, 3, 5}) {
    for (auto [name, options] : forms(4, 2)) {
      test::LimitedCount made;
      options.infeed = queue(1000, depth, [&] { made.add(); });
      const int64_t first = made.count();  // Number of calls that computed the specs.
      const auto max = [&, n = options.device_iterations](int64_t calls) {
        return (n * 4 * calls + depth) * 2;
      };
      made.limit(first + max(1));
      TrainingModel model = training_model(feed_network(), options);
      model();
      int64_t min = model.session().executable().feeds.front().rings[0].slots;
      for (const auto& ring : model.session().executable().feeds.front().rings)
        min = std::min(min, ring.slots);
      EXPECT_EQ(min, depth);
      for (int64_t calls = 1; calls < 4; ++calls) {
        EXPECT_TRUE(made.reaches_limit()) << name;
        EXPECT_TRUE(test::wait_until([&] { return options.infeed->position() == max(calls); }));
        made.limit(first + max(calls + 1));
        model();
      }
    }
  }
}

TEST(TrainingFeeds, TheEndOfDataLeavesWeights) {
  for (const int replicas : {1, 2}) {
    for (auto [name, options] : forms(4, replicas)) {
      options.device_iterations = 1;
      const std::vector<HostTensor> expected = train(options, 2).weights;
      options.infeed = queue(10 * replicas);
      TrainingModel model = training_model(feed_network(), options, nn::Optimizer::adamw());
      model();
      model();
      const std::string text = fmt::format("feed 'samples': requested {} elements, produced {}",
                                           12 * replicas, 10 * replicas);
      expect_refused({{name, [&] { model(); }, text}});
      EXPECT_EQ(model.updates(), 2);
      // No gradient was complete, so no weight has changed.
      std::vector<HostTensor> weights;
      model.session().each_variable(
          [&](const std::string&, HostTensor t) { weights.push_back(std::move(t)); });
      expect_same(weights, expected, name);
      // Another queue can be bound.
      model.session().bind_feed(*model.programs().infeed, queue(4 * replicas));
      model();
      EXPECT_EQ(model.updates(), 3);
    }
  }
}

// Each form writes every output, and runs on one replica and on two.
TEST(TrainingFeeds, ResultsGoToAnOutfeed) {
  size_t draw = 0;
  for (const int replicas : {1, 2}) {
    for (const Output& output : {Output::all(), Output::final(), Output::sum()}) {
      for (auto [name, options] : forms(4, replicas)) {
        if (draw++ % 2 == 0) continue;
        options.output = output;
        const std::vector<HostTensor> expected = train(options, 3).results;
        options.infeed = queue(3 * 4 * replicas);
        options.outfeed = std::make_shared<data::OutfeedQueue>();
        const Trained fed = train(options, 3);
        EXPECT_TRUE(fed.results.empty()) << name;
        const std::vector<NamedArray> found = options.outfeed->dequeue();
        ASSERT_EQ(found.size(), 2u);
        EXPECT_EQ(found[0].name, "loss");
        EXPECT_EQ(found[1].name, "logits");
        std::vector<float> all[2];
        for (size_t i = 0; i < expected.size(); ++i) {
          const auto values = expected[i].as<float>();
          all[i % 2].insert(all[i % 2].end(), values.begin(), values.end());
        }
        for (size_t i = 0; i < 2; ++i) {
          const auto values = found[i].array.as<float>();
          EXPECT_EQ(std::vector<float>(values.begin(), values.end()), all[i]) << name << i;
        }
      }
    }
  }
}

// The queue holds one element, so that the call ends only if its results are read meanwhile.
TEST(TrainingFeeds, ResultsAreReadDuringACall) {
  for (auto [name, options] : forms(4, 1)) {
    options.output = Output::all();
    options.infeed = queue(12);
    options.outfeed = std::make_shared<data::OutfeedQueue>(data::OutfeedQueueOptions{.depth = 1});
    TrainingModel model = training_model(feed_network(), options);
    model.compile();
    std::atomic<int64_t> read{0};
    const int64_t entries = options.device_iterations * 4;
    std::thread reader([&, outfeed = options.outfeed] {
      while (read < entries && outfeed->wait_for(60))
        read += outfeed->dequeue()[0].array.shape()[0];
    });
    model();
    reader.join();
    EXPECT_EQ(read, entries) << name;
  }
}

TEST(TrainingFeeds, PipelinesFromFunctionsTakeThem) {
  const std::vector<PipelineStage> stages = {
      [](nn::Builder& b, const StageInputs& in) {
        return in["x"] * b.add_variable_input("w", nn::constant(2), {2});
      },
      [](nn::Builder&, const StageInputs& in) { return ops::sum(in[0] * in["y"]); }};
  PipelineOptions options{
      .accumulate = 5,
      .fields = {{.name = "x", .spec = f32_spec({2})}, {.name = "y", .spec = f32_spec({2})}},
      .optimizer = nn::Optimizer::sgd(),
      .infeed = std::make_shared<data::InfeedQueue>(
          data::from_function(10,
                              [](int64_t k) {
                                HostTensor x(f32_spec({2})), y(f32_spec({2}));
                                for (float& v : x.as<float>()) v = static_cast<float>(k + 1);
                                for (float& v : y.as<float>()) v = static_cast<float>(k % 3);
                                return data::Element{{"x", std::move(x)}, {"y", std::move(y)}};
                              })),
      .outfeed = std::make_shared<data::OutfeedQueue>()};
  for (const bool trains : {true, false}) {
    options.learning_rate = trains ? LearningRate(0.0) : LearningRate();
    if (!trains) options.optimizer.reset();
    if (!trains) options.outputs = {"loss"};
    Ir ir;
    const Training t = pipeline(ir, stages, options);
    Session session(ir, {.device = cpu_device(), .more_devices = {cpu_device()}});
    session.bind_feed(*t.infeed, options.infeed);
    session.bind_feed(*t.outfeed, options.outfeed);
    for (int i = 0; i < 2; ++i) session.run({}, trains ? "train" : "eval");
    const HostTensor losses = options.outfeed->dequeue()[0].array;
    ASSERT_EQ(losses.elements(), 10);
    for (size_t k = 0; k < 10; ++k)
      EXPECT_EQ(losses.as<float>()[k], 4 * static_cast<float>((k + 1) * (k % 3))) << trains;
  }
}

TEST(InferenceFeeds, AModelByItselfTakesThem) {
  for (const Strategy& strategy :
       {Strategy(resident()), Strategy(pipelined("hidden", Stage("middle", "out")))}) {
    Options options = on_three_devices({.strategy = strategy, .device_iterations = 4});
    InferenceModel arrays = inference_model(feed_network(), options);
    options.infeed = std::make_shared<data::InfeedQueue>(
        data::from_tensors({{"input", samples(16)["input"]}}).batch(kMicroBatch));
    options.outfeed = std::make_shared<data::OutfeedQueue>();
    InferenceModel fed = inference_model(feed_network(), options);
    EXPECT_EQ(fed.call_size(), arrays.call_size());
    EXPECT_TRUE(fed().arrays.empty());
    EXPECT_TRUE(fed().arrays.empty());
    const HostTensor found = options.outfeed->dequeue()[0].array;
    const HostTensor expected = arrays(samples(8, 8))["logits"];
    const auto last = found.as<float>().last(static_cast<size_t>(expected.elements()));
    const auto values = expected.as<float>();
    EXPECT_TRUE(std::equal(last.begin(), last.end(), values.begin(), values.end()));
  }
}

// Inference with the weights of a training accepts arrays, also if its options are a copy of the
// training's.
TEST(InferenceFeeds, InferenceBesideATrainingTakesArrays) {
  Options options = on_three_devices({.accumulate = 4});
  options.infeed = queue(8);
  options.outfeed = std::make_shared<data::OutfeedQueue>();
  TrainingModel model = training_model(feed_network(), options);
  Options apart = options;
  apart.accumulate = 1;
  InferenceModel test = inference_model(model, apart);
  model();
  const HostTensor scores = test(samples(kMicroBatch))["logits"];
  EXPECT_EQ(scores.shape(), Shape({kMicroBatch, kClasses}));
  model();
  EXPECT_FALSE(test(samples(kMicroBatch))["logits"].same_bits(scores));
  EXPECT_EQ(options.outfeed->size(), 2);
}

TEST(TrainingFeeds, Refusals) {
  Options options = on_three_devices({.accumulate = 2, .device_iterations = 2});
  options.infeed = queue(8);
  TrainingModel model = training_model(feed_network(), options);
  model.compile();
  const auto data = data::from_tensors({{"input", samples(8)["input"]}});
  const auto other = [&](Options o, const std::function<void(Options&)>& change) {
    change(o);
    return [o] { training_model(feed_network(), o).compile(); };
  };
  struct Summed : FeedNet {
    Results build(nn::Builder& b, const Inputs& in) const {
      Results all = FeedNet::build(b, in);
      for (Loss& loss : all.losses) loss.writing.form = Writing::Reduction::kSum;
      return all;
    }
  };
  other(options, [](Options& o) {
    o.infeed = queue(8);
    o.outfeed = std::make_shared<data::OutfeedQueue>();
    o.output = Output::every(1);
  })();
  expect_refused({
      {"samples", [&] { model(samples(8)); },
       "train: the fields input, labels must come from the infeed, got input (8, 6) float32, "
       "labels (8,) int32 in a call; leave them out"},
      {"tuple", [&] { model({samples(8)["input"]}); }, "must come from the infeed, got "},
      {"no samples", [] { training_model(feed_network(), on_three_devices({}))(); },
       "train: samples must have the field 'input' (2, 6) float32, got "},
      {"second model", other(options, [](Options&) {}),
       "InfeedQueue: one feed must use the queue at a time"},
      {"fields",
       other(options,
             [&](Options& o) {
               o.infeed = std::make_shared<data::InfeedQueue>(data.batch(kMicroBatch));
             }),
       "feed 'samples' must have the fields of the dataset (input (2, 6) float32), got (input (2, "
       "6) float32, labels (2,) int32); make it with ir.infeed(name, queue.fields()), or map the "
       "dataset to its fields"},
      {"every",
       other(options,
             [](Options& o) {
               o.infeed = queue(8);
               o.outfeed = std::make_shared<data::OutfeedQueue>();
               o.output = Output::every(2);
             }),
       "training: the output must be all, final or sum with an outfeed, got every 2; a program "
       "writes the results of each update"},
      {"counts",
       [&] {
         Options o = options;
         o.infeed = queue(8);
         o.outfeed = std::make_shared<data::OutfeedQueue>();
         o.output = Output::all();
         training_model(Network(Summed(), feed_network().fields()), o).compile();
       },
       "results"},
      {"fit",
       [&] {
         fit(model, data::from_tensors({{"input", samples(8)["input"]}}), {});
       },
       "fit: a model must read its samples from the loader and return arrays, got one with a "
       "queue in Options::infeed or Options::outfeed; use Options::prefetch, or call the model in "
       "a loop"},
  });
  EXPECT_EQ(model.updates(), 0);
  model();
  EXPECT_EQ(model.updates(), 2);
  // A model that is made now has a session of its own: the feeds continue.
  InferenceModel late = inference_model(model, on_three_devices({}));
  EXPECT_EQ(late(samples(kMicroBatch))["logits"].shape(), Shape({kMicroBatch, kClasses}));
  model();
  EXPECT_EQ(model.updates(), 4);
}

}  // namespace
}  // namespace sluice::train
