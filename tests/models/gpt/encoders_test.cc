// Encoders must learn as in Hugging Face's transformers from equal weights (encoders.py), and have
// the same bits in every strategy.

#include <gtest/gtest.h>

#include "learning.h"
#include "sluice/base/test_refusals.h"
#include "sluice/models/encoders/bert.h"
#include "sluice/models/encoders/vit.h"
#include "sluice/models/hugging_face/hugging_face.h"

namespace sluice::test {
namespace {

constexpr const char* kStored = "tests/models/gpt/encoders.safetensors";
constexpr double kRate = 0.001;  // As in encoders.py.

// The sizes of encoders.py.
models::BertSizes bert_sizes() {
  return {.blocks = 2,
          .heads = 4,
          .width = 16,
          .hidden = 40,
          .context = 12,
          .vocabulary = 11,
          .micro_batch = 3,
          .eval_batch = 3};
}

models::VitSizes vit_sizes() {
  return {.channels = 2,
          .image_height = 8,
          .image_width = 12,
          .patch = 4,
          .classes = 5,
          .blocks = 2,
          .heads = 4,
          .width = 16,
          .hidden = 40,
          .micro_batch = 3,
          .eval_batch = 3};
}

LoadFirst load_layout(const models::WeightLayout& layout) {
  return [&layout](train::TrainingModel& model, const std::string& first) {
    models::load_hugging_face(model.session(), model.programs(), layout, first);
  };
}

TEST(Encoders, BertLearnsAsInPyTorch) {
  expect_losses_of_pytorch(models::bert(bert_sizes()), StoredTraining(kStored, "bert"), kRate,
                           {{"losses.token", "token_loss"}, {"losses.next", "next_loss"}},
                           load_layout(models::bert_weight_layout()));
}

TEST(Encoders, VitLearnsAsInPyTorch) {
  expect_losses_of_pytorch(models::vit(vit_sizes()), StoredTraining(kStored, "vit"), kRate,
                           {{"losses", "loss"}}, load_layout(models::vit_weight_layout()));
}

HostTensor integers(Shape shape, const std::function<int(int)>& value) {
  std::vector<int32_t> values;
  for (int i = 0; i < shape.elements(); ++i) values.push_back(value(i));
  return HostTensor::of<int32_t>(std::move(shape), i32, values);
}

TEST(Encoders, BertHasTheSameBitsInEveryStrategy) {
  models::BertSizes s = bert_sizes();
  s.dropout = 0.2;
  const auto samples = [](int step) -> data::Element {
    const Shape shape{6, 12};
    return {{"tokens", integers(shape, [&](int i) { return (i * i + 3 * step) % 11; })},
            {"segments", integers(shape, [](int i) { return i % 12 > 5 ? 1 : 0; })},
            {"mask", integers(shape, [](int i) { return i % 12 < 7 + i / 12 ? 1 : 0; })},
            {"labels", integers(shape, [&](int i) { return i % 5 == 0 ? (i + step) % 11 : -100; })},
            {"next", integers({6}, [](int i) { return i % 2; })}};
  };
  expect_same_bits_in_every_strategy(models::bert(s), samples, {"token_loss", "next_loss"});
}

TEST(Encoders, VitHasTheSameBitsInEveryStrategy) {
  models::VitSizes s = vit_sizes();
  s.dropout = 0.2;
  const auto samples = [](int step) -> data::Element {
    HostTensor images(TensorSpec{{6, 2, 8, 12}, f32, {}});
    for (int64_t i = 0; i < images.elements(); ++i)
      at(images.as<float>(), i) = static_cast<float>((i * i + step) % 17) / 8 - 1;
    return {{"input", images}, {"labels", integers({6}, [&](int i) { return (i + step) % 5; })}};
  };
  expect_same_bits_in_every_strategy(models::vit(s), samples, {"loss"});
}

// The update of two micro-batches with equal numbers of labels equals that of the whole batch.
TEST(Encoders, BertDividesByTheLabelsOfAllMicroBatches) {
  const StoredTraining stored(kStored, "bert");
  const auto trained_weight = [&](int64_t micro_batch, int64_t accumulate) {
    models::BertSizes s = bert_sizes();
    s.micro_batch = micro_batch;
    train::TrainingModel model =
        train::training_model(models::bert(s),
                              {.accumulate = accumulate,
                               .learning_rate = 0.5,
                               .session = {.device = cpu_device({.threads = 1})}},
                              nn::Optimizer::sgd());
    const std::string first = stored.write_first();
    load_layout(models::bert_weight_layout())(model, first);
    std::remove(first.c_str());
    const Shape shape{4, 12};
    model({{"tokens", integers(shape, [](int i) { return i * i % 11; })},
           {"segments", integers(shape, [](int i) { return i % 2; })},
           {"mask", integers(shape, [](int) { return 1; })},
           {"labels", integers(shape, [](int i) { return i % 4 == 0 ? i % 11 : -100; })},
           {"next", integers({4}, [](int i) { return i % 2; })}});
    return model.weight("bert.encoder.layer.0.output.dense.weight").to_doubles();
  };
  const std::vector<double> whole = trained_weight(4, 1), halves = trained_weight(2, 2);
  const std::vector<double> first =
      stored["first.bert.encoder.layer.0.output.dense.weight"].to_doubles();
  double change = 0;
  for (size_t i = 0; i < whole.size(); ++i) {
    EXPECT_NEAR(halves[i], whole[i], 1e-6);
    change = std::max(change, std::abs(whole[i] - first[(i % 16) * 40 + i / 16]));
  }
  EXPECT_GT(change, 1e-3);
}

// Evaluation returns the logits that training learns by, and hides padding.
TEST(Encoders, BertHidesPadding) {
  models::BertSizes s = bert_sizes();
  s.eval_batch = 1;
  s.results = models::TokenResults::kLogits;
  train::InferenceModel model =
      train::inference_model(models::bert(s), {.session = {.device = cpu_device({.threads = 1})}});
  const auto logits = [&](int padding) {
    const data::Element result =
        model({{"tokens", integers({1, 12}, [&](int i) { return i < 8 ? i : padding; })},
               {"segments", integers({1, 12}, [](int) { return 0; })},
               {"mask", integers({1, 12}, [](int i) { return i < 8 ? 1 : 0; })}});
    EXPECT_EQ(to_string(result["next_logits"].spec()), "(1, 2) float32");
    std::vector<double> values = result["logits"].to_doubles();
    values.resize(8 * 11);
    return values;
  };
  EXPECT_EQ(logits(0), logits(9));
}

TEST(Encoders, RefuseSizesThatDoNotFit) {
  const auto bert = [](auto change) { return building(models::bert, bert_sizes(), change); };
  const auto vit = [](auto change) { return building(models::vit, vit_sizes(), change); };
  expect_refused({{"heads", bert([](models::BertSizes& s) { s.heads = 3; }),
                   "bert: heads must divide the width, 16, got 3"},
                  {"vocabulary", bert([](models::BertSizes& s) { s.vocabulary = 0; }),
                   "bert: vocabulary must be at least 1, got 0"},
                  {"padding", bert([](models::BertSizes& s) { s.padding = 11; }),
                   "bert: padding must be -1 or a token below 11, got 11"},
                  {"dropout", bert([](models::BertSizes& s) { s.dropout = 1; }),
                   "bert: dropout must be in [0, 1), got 1"},
                  {"epsilon", vit([](models::VitSizes& s) { s.epsilon = 0; }),
                   "vit: epsilon must be positive, got 0"},
                  {"blocks", vit([](models::VitSizes& s) { s.blocks = 0; }),
                   "vit: blocks must be at least 1, got 0"},
                  {"patch", vit([](models::VitSizes& s) { s.patch = 3; }),
                   "vit: patch must divide the sides of an image, 8 and 12, got 3"},
                  {"classes", vit([](models::VitSizes& s) { s.classes = 0; }),
                   "vit: classes must be at least 1, got 0"}});
}

}  // namespace
}  // namespace sluice::test
