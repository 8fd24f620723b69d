// Numbers that are not finite: what is refused, with which text, and what stays.
#include "sluice/train/run/finite.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "sluice/base/numbers/argmax.h"
#include "sluice/base/test_refusals.h"
#include "sluice/data/samples.h"
#include "sluice/devices/cpu_device.h"
#include "sluice/interp/interpreter.h"
#include "sluice/ops/reductions.h"
#include "sluice/train/fit.h"
#include "sluice/train/test_samples.h"

namespace sluice::train {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

struct FiniteLayer : nn::Module {
  Results build(nn::Builder& b, const Inputs& in) const {
    const Tensor logits = b.inlined("out", nn::Linear(3), in["input"]);
    if (in.mode() == nn::RunMode::kEvaluate) return {.predictions = {{"logits", logits, "labels"}}};
    return {.losses = {cross_entropy(logits, in["labels"])}};
  }
};

Network finite_layer() {
  return {FiniteLayer(), {{"input", f32_spec({2, 6})}, {"labels", i32_spec({2})}}};
}

Options on_a_thread(Options options = {}) {
  options.session = {.device = cpu_device({.threads = 1})};
  return options;
}

// Twelve samples, of which the caller changes some.
data::Samples twelve_samples() {
  const data::Element all = test::samples(12);
  return {all["input"], all["labels"], "a test"};
}

FitResult train_finite_layer(const data::Samples& set, double rate = 0.1, int64_t epochs = 1) {
  TrainingModel model = training_model(finite_layer(), on_a_thread({.learning_rate = rate}));
  return fit(model, data::from_samples(set), {.epochs = epochs});
}

// Expects exactly this text.
template <typename Run>
void expect_diverged(const std::string& text, const Run& run) {
  try {
    run();
    FAIL() << "must be refused: " << text;
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kDiverged);
    EXPECT_EQ(std::string(e.what()), text);
  }
}

// The samples are shuffled: the row is that of the dataset.
TEST(Finite, ALossNamesTheLabelThatMadeItNan) {
  data::Samples set = twelve_samples();
  set.labels.as<int32_t>()[7] = 3;
  try {
    train_finite_layer(set);
    FAIL();
  } catch (const Error& e) {
    const std::string text = e.what();
    EXPECT_TRUE(text.ends_with(" is nan; label 3 in row 7 is outside 0..2")) << text;
  }
}

TEST(Finite, ALossNamesTheInputThatIsNotFinite) {
  for (const auto& [value, word] : {std::pair(kInf, "inf"), std::pair(-kNan, "nan")}) {
    data::Samples set = twelve_samples();
    set.images.as<float>()[5 * 6 + 2] = value;
    try {
      train_finite_layer(set);
      FAIL();
    } catch (const Error& e) {
      const std::string text = e.what();
      EXPECT_TRUE(text.ends_with(std::string(" is nan; field 'input' in row 5 is ") + word))
          << text;
    }
  }
}

// The first loss follows from the first weights: no update has changed them yet.
TEST(Finite, ALossBeforeTheFirstUpdateSaysNothingAboutRates) {
  TrainingModel model = training_model(finite_layer(), on_a_thread());
  model.compile();
  HostTensor weight = model.weight("out.weight");
  weight.as<float>()[0] = -kNan;
  model.session().write(model.programs().variables["out.weight"], weight);
  expect_diverged("the loss of step 0 is nan",
                  [&] { fit(model, data::from_samples(twelve_samples())); });
}

TEST(Finite, TheLastUpdateIsChecked) {
  for (const Strategy& strategy : {Strategy(resident()), Strategy(phased())}) {
    TrainingModel model =
        training_model(finite_layer(), on_a_thread({.strategy = strategy, .learning_rate = 3e38}));
    try {
      data::Samples set = twelve_samples();
      for (float& x : set.images.as<float>()) x *= 100;
      fit(model, data::from_samples(set), {.calls = 1});
      FAIL();
    } catch (const Error& e) {
      const std::string text = e.what();
      EXPECT_EQ(e.kind(), ErrorKind::kDiverged);
      EXPECT_TRUE(text.starts_with("variable 'out.")) << text;
      EXPECT_NE(text.find(" after 1 updates; it is not saved; a smaller learning rate may help"),
                text.npos)
          << text;
    }
  }
}

TEST(Finite, AFileStaysIfAVariableIsNotFinite) {
  const std::string path = testing::TempDir() + "finite_test.safetensors";
  TrainingModel model =
      training_model(finite_layer(), on_a_thread({.learning_rate = 0.1}), nn::Optimizer::adam());
  fit(model, data::from_samples(twelve_samples()), {.save = path});
  const auto before = std::filesystem::file_size(path);
  const auto written = std::filesystem::last_write_time(path);
  const Tensor& state = model.programs().state["out.bias.second_order"];
  HostTensor moments = model.session().read(state);
  moments.as<float>()[1] = kInf;
  model.session().write(state, moments);
  const std::string refusal =
      "optimizer state 'out.bias.second_order' must be finite, got inf in element 1";
  const auto all = [&](const std::string& rest, const auto& save) {
    expect_diverged(refusal + rest, save);
  };
  all(" after 6 updates; it is not saved; a smaller learning rate may help",
      [&] { model.save(path); });
  all("; it is not saved", [&] { save_torch_weights(model.session(), model.programs(), path); });
  EXPECT_EQ(std::filesystem::file_size(path), before);
  EXPECT_EQ(std::filesystem::last_write_time(path), written);
  std::filesystem::remove(path);
}

TEST(Finite, EvaluateAndPredictStopAtANanWithItsRow) {
  data::Samples set = twelve_samples();
  set.images.as<float>()[9 * 6] = -kNan;
  for (const int64_t iterations : {1, 2, 5}) {
    InferenceModel model =
        inference_model(finite_layer(), on_a_thread({.device_iterations = iterations}));
    const std::string text = "prediction 'logits' in row 9 is nan; its field 'input' has nan";
    expect_diverged(text, [&] { evaluate(model, data::from_samples(set)); });
    expect_diverged(text, [&] { predict(model, data::from_samples(set)); });
  }
}

TEST(Finite, RatesMustBeFinite) {
  const auto refused = [](double rate, const char* found) {
    const std::string rest = std::string(" must be a finite float32 of at least 0, got ") + found;
    expect_refused(
        {{"a model", [&] { training_model(finite_layer(), on_a_thread({.learning_rate = rate})); },
          "learning_rate" + rest},
         {"programs",
          [&] {
            build_training(Ir(), finite_layer(), nn::Optimizer::sgd(), {.learning_rate = rate});
          },
          "learning_rate" + rest},
         {"a later rate",
          [&] { training_model(finite_layer(), on_a_thread()).set_learning_rate(rate); }, rest},
         {"a schedule",
          [&] {
            TrainingModel model = training_model(finite_layer(), on_a_thread());
            fit(model, test::dataset(12), {.schedule = LearningRateSchedule{.peak = rate}});
          },
          rest}});
  };
  refused(kNan, "nan");
  refused(-kNan, "nan");
  refused(kInf, "inf");
  refused(1e39, "1e+39");
  refused(-0.5, "-0.5");
  Ir ir;
  Graph& main = ir.main_graph();
  const Tensor w = main.variable(HostTensor::of<float>({1}, f32, {1}), "w");
  const nn::NamedTensors all = nn::NamedTensors::from_dict({{"w", w}});
  expect_refused({{"the optimizer", [&] { nn::Optimizer::sgd().apply(main, all, all, -kNan); },
                   "optimizer: the learning rate must be a finite float32, got nan"}});
}

// As PyTorch: a NaN is the largest element, and the first of several wins.
TEST(Finite, ArgmaxOfTheHostIsThatOfTheOperator) {
  const std::vector<std::vector<float>> rows{
      {1, 3, 2}, {3, 1, 3}, {1, kNan, 5}, {kNan, 7, kNan}, {-kInf, -kInf, kInf}, {1, 2, -kNan}};
  HostTensor scores(f32_spec({6, 3})), labels(i32_spec({6}));
  for (size_t r = 0; r < rows.size(); ++r)
    std::copy(rows[r].begin(), rows[r].end(), scores.as<float>().begin() + 3 * r);
  Ir ir;
  const H2dStream in = ir.h2d_stream(scores.spec(), "scores");
  const Tensor classes = ops::argmax(ir.main_graph().host_load(in), {.axis = 1});
  const D2hStream out = ir.main_graph().host_store(classes, "classes");
  const Collected got = Interpreter(ir).run({{in, scores}});
  for (size_t r = 0; r < rows.size(); ++r) {
    labels.as<int32_t>()[r] = got[out].as<int32_t>()[r];
    EXPECT_EQ(static_cast<int32_t>(argmax(rows[r])), labels.as<int32_t>()[r]) << r;
  }
  EXPECT_EQ(labels.as<int32_t>()[2], 1);
  EXPECT_EQ(accuracy(scores, labels), 100);
}

}  // namespace
}  // namespace sluice::train
