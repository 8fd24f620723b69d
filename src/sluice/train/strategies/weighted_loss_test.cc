// Losses with a total weight: updates against those of the whole batch, and their bits in every
// strategy.
#include <gtest/gtest.h>

#include <cmath>

#include "sluice/base/test_refusals.h"
#include "sluice/train/cut/test_ways.h"

namespace sluice::train {
namespace {

constexpr int32_t kIgnored = -1;
constexpr int kReplicas = 2;

using MakeLoss = std::function<Loss(const Tensor& logits, const Tensor& labels)>;

// A linear layer in a block of its own.
Tensor layer(nn::Builder& b, const std::string& name, const Tensor& x) {
  const nn::Block block(b, name);
  return ops::tanh(linear(b, name, x));
}

// `layers` equal blocks, then one that has the loss. The fields have `batch` samples.
Network with_loss(int64_t batch, MakeLoss loss, int layers = 2) {
  return {Written([loss = std::move(loss), layers](nn::Builder& b, const Inputs& in) {
            Tensor x = in["x"];
            for (int i = 0; i < layers; ++i) x = layer(b, fmt::format("b{}", i), x);
            const nn::Block last(b, "last");
            const Tensor logits = linear(b, "last", x, 3);
            if (in.mode() == nn::RunMode::kEvaluate) return Results{.predictions = {{"y", logits}}};
            return Results{.losses = {loss(logits, in["labels"])}, .predictions = {{"y", logits}}};
          }),
          {{.name = "x", .spec = f32_spec({batch, kWidth}), .eval_spec = f32_spec({2, kWidth})},
           {.name = "labels", .spec = i32_spec({batch})}}};
}

Loss ignoring(const Tensor& logits, const Tensor& labels) {
  return cross_entropy(logits, labels, nn::CrossEntropyOptions{.ignore_index = kIgnored});
}
Loss with_class_weights(const Tensor& logits, const Tensor& labels) {
  return cross_entropy(
      logits, labels,
      nn::CrossEntropyOptions{
          .class_weights = {0.25, 1, 3}, .label_smoothing = 0.125, .ignore_index = kIgnored});
}
// The sum of squares of the logits of the samples that count.
Loss by_hand(const Tensor& logits, const Tensor& labels) {
  const Tensor counts = ops::cast(ops::not_equal(labels, static_cast<double>(kIgnored)), f32);
  const Tensor squares = ops::sum(logits * logits, {.axes = {-1}});
  return {.value = ops::sum(squares * counts), .weight = 0.5, .total_weight = ops::sum(counts)};
}

// Sample i of an update: five of the first six labels count, then one of six, then all, then none.
int32_t label_of(int64_t i) {
  const bool counts =
      std::array{i % 6 != 4, i % 6 == 2, true, false}[static_cast<size_t>(i / 6) % 4];
  return counts ? static_cast<int32_t>(i * i % 3) : kIgnored;
}

struct Trajectory {
  std::vector<float> weights;
  std::vector<float> losses;
};

Trajectory train_updates(const Network& n, const Options& options, int replicas,
                         size_t more_devices = 0,
                         nn::Optimizer optimizer = nn::Optimizer::sgd({.momentum = 0.5})) {
  Ir ir(replicas);
  const Training t = build_training(ir, n, std::move(optimizer), options);
  Session session(ir, {.device = cpu_device({.threads = 1}),
                       .more_devices = std::vector(more_devices, cpu_device()),
                       .remote = "host"});
  EXPECT_EQ(session.planned_bytes(), session.measured_bytes());
  StepArrays arrays(t);
  Trajectory result;
  for (int update = 0; update < 3; ++update) {
    int64_t next = update;
    for (float& x : arrays.fields[0].as<float>()) x = std::sin(static_cast<float>(next += 1));
    next = 0;
    for (int32_t& x : arrays.fields[1].as<int32_t>()) x = label_of(next++);
    const HostTensors out = session.run(arrays.inputs(t), "train");
    for (const float x : out[t.losses[0]].as<float>()) result.losses.push_back(x);
  }
  session.each_variable([&](const std::string&, const HostTensor& value) {
    for (const float x : value.as<float>()) result.weights.push_back(x);
  });
  return result;
}

TEST(WeightedLoss, AnUpdateIsThatOfTheWholeBatch) {
  for (const MakeLoss& loss :
       {MakeLoss(ignoring), MakeLoss(with_class_weights), MakeLoss(by_hand)}) {
    const Trajectory whole = train_updates(with_loss(48, loss), {.learning_rate = 4.0}, 1);
    // The means of micro-batches are another update.
    const MakeLoss mean_of = [&](const Tensor& x, const Tensor& y) {
      const Tensor plain =
          ops::cross_entropy(x, y, {.has_ignore_index = true, .ignore_index = kIgnored});
      const Loss l = loss(x, y);
      return Loss{.value = l.gradients.empty() ? l.value / divisor_of(l.total_weight) : plain};
    };
    const Trajectory mean =
        train_updates(with_loss(6, mean_of), {.accumulate = 8, .learning_rate = 4.0}, 1);
    double difference = 0;
    for (const auto& [accumulate, replicas] : {std::pair(8, 1), {4, 2}, {2, 4}, {1, 8}}) {
      const Trajectory parts = train_updates(
          with_loss(6, loss), {.accumulate = accumulate, .learning_rate = 4.0}, replicas);
      ASSERT_EQ(parts.weights.size(), whole.weights.size());
      for (size_t i = 0; i < whole.weights.size(); ++i) {
        EXPECT_NEAR(parts.weights[i], whole.weights[i], 2e-6) << replicas << " replicas, " << i;
        difference = std::max<double>(difference, std::abs(mean.weights[i] - whole.weights[i]));
      }
    }
    EXPECT_GT(difference, 1e-4);
  }
}

TEST(WeightedLoss, ReturnsTheMeanOfEachMicroBatch) {
  const Trajectory parts = train_updates(with_loss(6, ignoring), {.accumulate = 4}, 1);
  const Trajectory plain = train_updates(
      with_loss(6,
                [](const Tensor& x, const Tensor& y) {
                  return Loss{.value = ops::cross_entropy(
                                  x, y, {.has_ignore_index = true, .ignore_index = kIgnored})};
                }),
      {.accumulate = 4}, 1);
  for (size_t m = 0; m < 4; ++m) EXPECT_FLOAT_EQ(parts.losses[m], plain.losses[m]) << m;
  EXPECT_GT(parts.losses[2], 0.5);
  EXPECT_EQ(parts.losses[3], 0);  // No label counts.
}

TEST(WeightedLoss, AnUpdateWithoutAnyWeightChangesNothing) {
  const MakeLoss none = [](const Tensor& x, const Tensor& y) {
    return cross_entropy(x, ops::mul(y, 0) + kIgnored,
                         nn::CrossEntropyOptions{.ignore_index = kIgnored});
  };
  const Trajectory same =
      train_updates(with_loss(6, none), {.accumulate = 2, .learning_rate = 0.5}, 1);
  const Trajectory first =
      train_updates(with_loss(6, none), {.accumulate = 2, .learning_rate = 0.0}, 1);
  EXPECT_EQ(same.weights, first.weights);
}

TEST(WeightedLoss, HasOneDigestInEveryStrategy) {
  const Network n = with_loss(6, with_class_weights);
  const std::vector<Way> all = ways(Ways::kSome);
  size_t draw = 0;
  for (const auto& [accumulate, clip] : {std::pair(4, false), {4, true}, {1, false}}) {
    Options base{.accumulate = accumulate};
    if (clip) base.max_grad_norm = 0.05;
    const Trajectory expected = train_updates(n, base, kReplicas);
    for (const Way& way : accumulate == 4 && !clip ? all : share(all, 3, ++draw)) {
      const Trajectory got =
          train_updates(n, with_reductions_of(way.step, base), kReplicas, way.more_devices);
      EXPECT_EQ(got.weights, expected.weights) << way.name << ", accumulate " << accumulate;
      EXPECT_EQ(got.losses, expected.losses) << way.name << ", accumulate " << accumulate;
    }
  }
}

// Equal blocks whose variables are in remote memory run in loops, which take the total weight.
TEST(WeightedLoss, MayBeThatOfRowsInALoop) {
  const Network n = with_loss(6, ignoring, 7);
  for (const std::optional<double> clip : {std::optional<double>(), std::optional(0.05)}) {
    const Options base{.accumulate = 4, .max_grad_norm = clip};
    const Trajectory expected = train_updates(n, base, kReplicas);
    for (const IoMode mode : {IoMode::kIo, IoMode::kIoOverlapped}) {
      Options options = base;
      options.strategy = phased();
      options.io_mode = mode;
      options.locations = locations().back();
      EXPECT_EQ(train_updates(n, options, kReplicas).weights, expected.weights);
    }
  }
}

void expect_refusal(std::function<void()> act, const std::string& part) {
  expect_refused({{part, std::move(act), part}});
}

TEST(WeightedLoss, IsRefusedWhereTheDivisorIsNotOne) {
  const auto build = [](const MakeLoss& loss, const Options& options = {}) {
    Ir ir;
    build_training(ir, with_loss(6, loss), nn::Optimizer::sgd(), options);
  };
  const auto with_total = [](const std::function<Tensor(const Tensor&)>& total) {
    return [total](const Tensor& x, const Tensor& y) {
      return Loss{.value = ops::sum(x), .total_weight = total(y)};
    };
  };
  expect_refusal([&] { build(ignoring, {.accumulation_reduction = Accumulation::kSum}); },
                 "must be means for a loss with a total_weight");
  expect_refusal([&] { build(ignoring, {.replica_reduction = ReplicaReduction::kSum}); },
                 "must be means for a loss with a total_weight");
  expect_refusal([&] { build(with_total([](const Tensor& y) { return ops::cast(y, f32); })); },
                 "total_weight of loss 'loss' must be a () float32");
  expect_refusal(
      [&] {
        build([](const Tensor& x, const Tensor& y) {
          return cross_entropy(x, y,
                               nn::CrossEntropyOptions{.reduction = ops::LossReduction::kSum});
        });
      },
      "the reduction of loss 'loss' must be the mean");
  const Network two{
      Written([](nn::Builder& b, const Inputs& in) {
        const Tensor logits = linear(b, "a", in["x"], 3);
        Results r{.losses = {ignoring(logits, in["labels"]),
                             {.name = "other", .value = ops::mean(logits)}},
                  .predictions = {{"y", logits}}};
        return r;
      }),
      {{.name = "x", .spec = f32_spec({6, kWidth})}, {.name = "labels", .spec = i32_spec({6})}}};
  expect_refusal([&] { two.build(Ir(), nn::RunMode::kTrain); },
                 "losses must share one total_weight");
}

// Two losses with one total weight are one sum.
TEST(WeightedLoss, MayBeSeveralWithOneTotalWeight) {
  const auto two = [](int64_t batch) {
    return Network{Written([](nn::Builder& b, const Inputs& in) {
                     const Tensor logits = linear(b, "a", in["x"], 3);
                     Loss first = ignoring(logits, in["labels"]);
                     Loss second = by_hand(logits, in["labels"]);
                     second.name = "squares";
                     second.total_weight = first.total_weight;
                     return Results{.losses = {first, second}, .predictions = {{"y", logits}}};
                   }),
                   {{.name = "x", .spec = f32_spec({batch, kWidth})},
                    {.name = "labels", .spec = i32_spec({batch})}}};
  };
  const Trajectory whole = train_updates(two(24), {}, 1);
  const Trajectory parts = train_updates(two(6), {.accumulate = 4}, 1);
  for (size_t i = 0; i < whole.weights.size(); ++i)
    EXPECT_NEAR(parts.weights[i], whole.weights[i], 2e-6);
}

}  // namespace
}  // namespace sluice::train
