// The loss of a call, which fit() reports: against the losses of each micro-batch.
#include <gtest/gtest.h>

#include <cmath>

#include "sluice/base/test_refusals.h"
#include "sluice/train/cut/test_ways.h"
#include "sluice/train/fit.h"

namespace sluice::train {
namespace {

constexpr int32_t kSkipped = -1;
constexpr int64_t kPerBatch = 6, kCalls = 2;

// The losses of a test's network.
enum class Reported { kMean, kWeighted, kTwoWeighted };

// Three blocks. Labels of kSkipped do not count in weighted losses.
Network reported_network(Reported losses, Writing writing = {}) {
  return {
      Written([=](nn::Builder& b, const Inputs& in) {
        Tensor x = in["x"];
        for (const char* const name : {"b0", "b1"}) {
          const nn::Block block(b, name);
          x = ops::tanh(linear(b, name, x));
        }
        const nn::Block last(b, "last");
        const Tensor logits = linear(b, "last", x, 3);
        Results all{.predictions = {{"y", logits}}};
        if (!in.wants_losses()) return all;
        if (losses == Reported::kMean) {
          all.losses = {{.value = ops::mean(logits * logits), .writing = writing}};
          return all;
        }
        const nn::CrossEntropyOptions options{.ignore_index = kSkipped};
        all.losses = {cross_entropy(logits, in["labels"], options)};
        if (losses == Reported::kWeighted) return all;
        const Tensor counts =
            ops::cast(ops::not_equal(in["labels"], static_cast<double>(kSkipped)), f32);
        all.losses.push_back({.name = "squares",
                              .value = ops::sum(ops::sum(logits * logits, {.axes = {-1}}) * counts),
                              .weight = 0.25,
                              .total_weight = all.losses[0].total_weight});
        return all;
      }),
      {{.name = "x", .spec = f32_spec({kPerBatch, kWidth})},
       {.name = "labels", .spec = i32_spec({kPerBatch})}}};
}

// Micro-batches have unequal numbers of labels that count; some have none.
data::Element reported_samples(int64_t count) {
  HostTensor x(f32_spec({count, kWidth})), labels(i32_spec({count}));
  float next = 0;
  for (float& v : x.as<float>()) v = 2 * std::sin(next += 1);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t batch = i / kPerBatch;
    at(labels.as<int32_t>(), i) =
        i % kPerBatch < batch * 5 % 7 ? static_cast<int32_t>(i * i % 3) : kSkipped;
  }
  return {{"x", std::move(x)}, {"labels", std::move(labels)}};
}

// The losses that fit() reports of each call, and the mean of each loss by itself.
struct ReportedLosses {
  std::vector<double> calls;
  std::vector<float> returned;
};

ReportedLosses reported(const Network& network, const Options& options) {
  TrainingModel model = training_model(network, options);
  const CallSize size = model.call_size();
  DataLoader data(options, data::from_tensors(reported_samples(kCalls * size.samples())),
                  {.batch_size = kPerBatch});
  ReportedLosses found;
  const FitResult result = fit(model, data, {.after_call = [&](const CallReport& report) {
                                 found.calls.push_back(report.loss);
                                 return true;
                               }});
  EXPECT_EQ(result.loss, found.calls.back());
  found.returned = result.losses;
  return found;
}

// Computes the losses of calls from the losses of micro-batches, by the numbers of their labels.
std::vector<double> expected_of(Reported losses, const Network& network, Options options) {
  options.output = Output::all();
  const ReportedLosses all = reported(network, options);
  const auto batches = static_cast<int64_t>(all.returned.size()) / kCalls;
  const data::Element samples = reported_samples(kCalls * batches * kPerBatch);
  std::vector<double> expected;
  for (int64_t c = 0; c < kCalls; ++c) {
    double sum = 0, weights = 0;
    for (int64_t m = c * batches; m < (c + 1) * batches; ++m) {
      double weight = losses == Reported::kMean;
      for (int64_t i = m * kPerBatch; losses != Reported::kMean && i < (m + 1) * kPerBatch; ++i)
        weight += at(samples["labels"].as<int32_t>(), i) != kSkipped;
      sum += weight * static_cast<double>(at(all.returned, m));
      weights += weight;
    }
    expected.push_back(weights == 0 ? 0 : sum / weights);
  }
  return expected;
}

void expect_losses(const std::vector<double>& found, const std::vector<double>& expected,
                   const std::string& text) {
  ASSERT_EQ(found.size(), expected.size()) << text;
  for (size_t i = 0; i < found.size(); ++i)
    EXPECT_NEAR(found[i], expected[i], 2e-6 * std::abs(expected[i])) << text << ", call " << i;
}

TEST(CallLoss, IsTheMeanOverAllMicroBatchesWhateverTheOutput) {
  for (const Reported losses : {Reported::kMean, Reported::kWeighted, Reported::kTwoWeighted}) {
    const Network network = reported_network(losses);
    for (const auto& [accumulate, iterations, replicas] :
         {std::tuple(4, 3, 2), {4, 1, 1}, {1, 3, 1}, {1, 1, 2}, {1, 1, 1}}) {
      Options options{.accumulate = accumulate,
                      .device_iterations = iterations,
                      .replicas = replicas,
                      .learning_rate = 0.5,
                      .session = {.device = cpu_device({.threads = 1})}};
      const std::vector<double> expected = expected_of(losses, network, options);
      for (const Output& output : {Output::all(), Output::final(), Output::sum(), Output::every(1),
                                   Output::every(iterations)}) {
        options.output = output;
        expect_losses(reported(network, options).calls, expected,
                      fmt::format("losses {}, {} x {} x {}, output {}", static_cast<int>(losses),
                                  accumulate, iterations, replicas, static_cast<int>(output.mode)));
      }
    }
  }
}

TEST(CallLoss, IsTheSameInEveryStrategy) {
  for (const Reported losses : {Reported::kMean, Reported::kTwoWeighted}) {
    const Network network = reported_network(losses);
    const Options base{.accumulate = 4,
                       .replicas = 2,
                       .output = Output::final(),
                       .session = {.device = cpu_device({.threads = 1})}};
    const std::vector<double> expected = expected_of(losses, network, base);
    for (const Way& way : ways(Ways::kSome)) {
      Options options = with_reductions_of(way.step, base);
      options.output = Output::final();
      options.replicas = 2;
      options.session = {.device = cpu_device({.threads = 1}),
                         .more_devices = std::vector(way.more_devices, cpu_device()),
                         .remote = "host"};
      expect_losses(reported(network, options).calls, expected, way.name);
    }
  }
}

// An entry is then the sum of an update.
TEST(CallLoss, IsTheMeanOfLossesThatAreSummed) {
  const Options options{.accumulate = 4,
                        .device_iterations = 3,
                        .learning_rate = 0.5,
                        .session = {.device = cpu_device({.threads = 1})}};
  const std::vector<double> expected =
      expected_of(Reported::kMean, reported_network(Reported::kMean), options);
  const Network summed = reported_network(Reported::kMean, {.form = Writing::Reduction::kSum});
  expect_losses(reported(summed, options).calls, expected, "summed");
}

// Programs that are built by hand return what their options name, and nothing more.
TEST(CallLoss, OfProgramsThatExistIsThatOfReturnedMicroBatches) {
  Options options{.accumulate = 4,
                  .output = Output::final(),
                  .session = {.device = cpu_device({.threads = 1})}};
  const Network network = reported_network(Reported::kMean);
  Ir ir;
  const Training t = build_training(ir, network, nn::Optimizer::sgd(), options);
  EXPECT_TRUE(t.loss_sums.empty());
  TrainingModel model = training_model(network, options, ir, t);
  DataLoader data(options, data::from_tensors(reported_samples(4 * kPerBatch)),
                  {.batch_size = kPerBatch});
  const FitResult result = fit(model, data);
  EXPECT_EQ(result.loss, static_cast<double>(result.losses.at(0)));
}

// The last micro-batch is finite, another one of the call is not.
TEST(CallLoss, IsRefusedIfALossThatIsNotReturnedIsNotFinite) {
  const Options options{.accumulate = 4,
                        .output = Output::final(),
                        .session = {.device = cpu_device({.threads = 1})}};
  data::Element samples = reported_samples(8 * kPerBatch);
  samples.arrays[0].as<float>()[kPerBatch * kWidth] = std::nanf("");
  TrainingModel model = training_model(reported_network(Reported::kMean), options);
  DataLoader data(options, data::from_tensors(std::move(samples)), {.batch_size = kPerBatch});
  expect_refused({{"nan", [&] { fit(model, data); },
                   "the loss of step 0 is nan; field 'x' in row 6 is nan", ErrorKind::kDiverged}});
}

}  // namespace
}  // namespace sluice::train
