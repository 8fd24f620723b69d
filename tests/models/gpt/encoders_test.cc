// Encoders must learn as in Hugging Face's transformers from equal weights (encoders.py), and have
// the same bits in every strategy.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

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

// The losses of an evaluation are means over the samples, in batches of any size.
TEST(Encoders, BertHasTheLossesOfAnyBatch) {
  const Shape shape{7, 12};
  const auto evaluated = [&](int64_t batch, bool predicts) {
    models::BertSizes s = bert_sizes();
    s.eval_batch = batch;
    train::InferenceModel model = train::inference_model(
        models::bert(s), {.session = {.device = cpu_device({.threads = 1})}});
    const auto label = [&](int i) { return predicts && i % 5 < i / 12 ? i % 11 : -100; };
    return train::evaluate(
        model, data::from_tensors({{"tokens", integers(shape, [](int i) { return i * i % 11; })},
                                   {"segments", integers(shape, [](int i) { return i % 2; })},
                                   {"mask", integers(shape, [](int) { return 1; })},
                                   {"labels", integers(shape, label)},
                                   {"next", integers({7}, [](int i) { return i % 3 == 0; })}}));
  };
  const train::Evaluation want = evaluated(7, true);
  for (const int64_t batch : {1, 2, 3}) {
    const train::Evaluation have = evaluated(batch, true);
    ASSERT_EQ(have.metrics.size(), 7u);
    for (size_t i = 0; i < have.metrics.size(); ++i) {
      const train::Metric& expected = want.metrics.at(i);
      EXPECT_EQ(have.metrics[i].name, expected.name);
      EXPECT_NEAR(have.metrics[i].value, expected.value, expected.percent ? 0 : 1e-5);
    }
  }
  // Without a predicted token, there is no loss of them.
  const train::Evaluation next = evaluated(2, false);
  EXPECT_NEAR(next["loss/next_loss"].value_or(-1), want.metric("loss/next_loss").value, 1e-6);
  for (const char* const name : {"loss", "loss/token_loss", "perplexity", "accuracy"})
    EXPECT_EQ(next[name], std::nullopt) << name;
  EXPECT_EQ(next.metrics.size(), 2u);
}

// The labels of both losses are checked against the classes of their own loss.
TEST(Encoders, BertNamesALabelThatIsNoClass) {
  const auto fitted = [](int32_t token, int32_t next) {
    return [=] {
      train::TrainingModel model = train::training_model(
          models::bert(bert_sizes()),
          {.learning_rate = 0.1, .session = {.device = cpu_device({.threads = 1})}},
          nn::Optimizer::sgd());
      const int64_t samples = bert_sizes().micro_batch;
      const Shape shape{samples, 12};
      const auto zeros = [](int) { return 0; };
      train::fit(model,
                 data::from_tensors(
                     {{"tokens", integers(shape, zeros)},
                      {"segments", integers(shape, zeros)},
                      {"mask", integers(shape, [](int) { return 1; })},
                      {"labels", integers(shape, [&](int i) { return i == 3 ? token : 1; })},
                      {"next", integers({samples}, [&](int i) { return i == 1 ? next : 0; })}}));
    };
  };
  const ErrorKind diverged = ErrorKind::kDiverged;
  expect_refused({{"token", fitted(11, 1), "; label 11 in row 0 is outside 0..10", diverged},
                  {"next", fitted(3, 2), "; label 2 in row 1 is outside 0..1", diverged}});
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

// A file that transformers 5.24 has written for BertForPreTraining.
constexpr const char* kBertConfig = R"({
  "add_cross_attention": false, "architectures": ["BertForPreTraining"],
  "attention_probs_dropout_prob": 0.1, "bos_token_id": null, "classifier_dropout": null,
  "dtype": "float32", "eos_token_id": null, "hidden_act": "gelu", "hidden_dropout_prob": 0.1,
  "hidden_size": 16, "initializer_range": 0.02, "intermediate_size": 24, "is_decoder": false,
  "layer_norm_eps": 1e-12, "max_position_embeddings": 12, "model_type": "bert",
  "num_attention_heads": 4, "num_hidden_layers": 3, "pad_token_id": 2,
  "tie_word_embeddings": true, "transformers_version": "5.24.0", "type_vocab_size": 5,
  "use_cache": true, "vocab_size": 11
})";
// A file that it has written for ViTForImageClassification.
constexpr const char* kVitConfig = R"({
  "architectures": ["ViTForImageClassification"], "attention_probs_dropout_prob": 0.0,
  "dtype": "float32", "encoder_stride": 16, "hidden_act": "gelu", "hidden_dropout_prob": 0.0,
  "hidden_size": 16, "id2label": {"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"},
  "image_size": 8, "initializer_range": 0.02, "intermediate_size": 24,
  "label2id": {"LABEL_0": 0, "LABEL_1": 1, "LABEL_2": 2}, "layer_norm_eps": 1e-12,
  "model_type": "vit", "num_attention_heads": 4, "num_channels": 2, "num_hidden_layers": 3,
  "patch_size": 4, "pooler_act": "tanh", "pooler_output_size": 16, "qkv_bias": true,
  "transformers_version": "5.24.0"
})";

// A folder with a config.json.
class ConfigFolder {
 public:
  explicit ConfigFolder(const std::string& text = "")
      : path_(std::filesystem::path(testing::TempDir()) / "encoder_config") {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
    if (!text.empty()) std::ofstream(config()) << text;
  }
  ~ConfigFolder() { std::filesystem::remove_all(path_); }
  std::string path() const { return path_; }
  std::string config() const { return path_ / "config.json"; }

 private:
  std::filesystem::path path_;
};

std::string changed(const std::string& text, const std::string& part, const std::string& other) {
  const size_t at = text.find(part);
  EXPECT_NE(at, text.npos) << part;
  return std::string(text).replace(at, part.size(), other);
}

TEST(Encoders, SizesOfBertAreThoseOfTheConfiguration) {
  const ConfigFolder folder(kBertConfig);
  const auto expect = [](const models::BertSizes& s, int64_t padding) {
    EXPECT_EQ(s.blocks, 3);
    EXPECT_EQ(s.heads, 4);
    EXPECT_EQ(s.width, 16);
    EXPECT_EQ(s.hidden, 24);
    EXPECT_EQ(s.context, 12);
    EXPECT_EQ(s.vocabulary, 11);
    EXPECT_EQ(s.segment_types, 5);
    EXPECT_EQ(s.padding, padding);
    EXPECT_EQ(s.epsilon, 1e-12);
    EXPECT_EQ(s.micro_batch, 3);
  };
  models::BertSizes sizes = models::read_bert_sizes(folder.path(), {.micro_batch = 3});
  expect(sizes, 2);
  sizes.padding = -1;
  models::write_bert_config(sizes, folder.config());
  expect(models::read_bert_sizes(folder.path(), {.micro_batch = 3}), -1);
}

TEST(Encoders, SizesOfVitAreThoseOfTheConfiguration) {
  const ConfigFolder folder(kVitConfig);
  const auto expect = [](const models::VitSizes& s, int64_t width) {
    EXPECT_EQ(s.blocks, 3);
    EXPECT_EQ(s.heads, 4);
    EXPECT_EQ(s.width, 16);
    EXPECT_EQ(s.hidden, 24);
    EXPECT_EQ(s.channels, 2);
    EXPECT_EQ(s.image_height, 8);
    EXPECT_EQ(s.image_width, width);
    EXPECT_EQ(s.patch, 4);
    EXPECT_EQ(s.classes, 3);
    EXPECT_EQ(s.micro_batch, 3);
  };
  models::VitSizes sizes = models::read_vit_sizes(folder.path(), {.micro_batch = 3});
  expect(sizes, 8);
  models::write_vit_config(sizes, folder.config());
  expect(models::read_vit_sizes(folder.path(), {.micro_batch = 3}), 8);
  sizes.image_width = 12;
  models::write_vit_config(sizes, folder.config());
  expect(models::read_vit_sizes(folder.path(), {.micro_batch = 3}), 12);
}

TEST(Encoders, OtherConfigurationsAreRefused) {
  const auto bert = [](const char* part, const char* other) {
    return [=] { models::read_bert_sizes(ConfigFolder(changed(kBertConfig, part, other)).path()); };
  };
  const auto vit = [](const char* part, const char* other) {
    return [=] { models::read_vit_sizes(ConfigFolder(changed(kVitConfig, part, other)).path()); };
  };
  for (Refusal r : std::vector<Refusal>{
           {"model", bert("\"bert\"", "\"roberta\""), "'model_type' must be \"bert\", got"},
           {"no model", vit("\"model_type\": \"vit\",", ""), "must be \"vit\", got nothing"},
           {"activation", bert("\"gelu\"", "\"gelu_new\""), "'hidden_act' must be \"gelu\", got"},
           {"blocks", vit("layers\": 3", "layers\": 0"), "'num_hidden_layers' must be an integer"},
           {"heads", bert("heads\": 4", "heads\": 3"),
            "'num_attention_heads' must be a divisor of 'hidden_size', 16, got 3"},
           {"decoder", bert("decoder\": false", "decoder\": true"), "'is_decoder' must be false"},
           {"tied", bert("embeddings\": true", "embeddings\": false"),
            "'tie_word_embeddings' must be true, got false"},
           {"positions", bert("\"use_cache\": true", "\"position_embedding_type\": \"relative\""),
            "'position_embedding_type' must be \"absolute\", got \"relative\""},
           {"padding", bert("id\": 2", "id\": 11"),
            "'pad_token_id' must be null or a token below 'vocab_size', 11, got 11"},
           {"bias", vit("qkv_bias\": true", "qkv_bias\": false"), "'qkv_bias' must be true"},
           {"sides", vit("image_size\": 8", "image_size\": [8, 0]"), "or a list of two, got array"},
           {"patch", vit("patch_size\": 4", "patch_size\": 3"),
            "'patch_size' must be a divisor of the sides of an image, 8 and 8, got 3"},
           {"classes", vit("{\"0\": \"LABEL_0\", \"1\": \"LABEL_1\", \"2\": \"LABEL_2\"}", "{}"),
            "'id2label' must be an object with a name for each class, got object"}}) {
    r.kind = ErrorKind::kBadFile;
    expect_refused({r});
  }
  expect_refused({{"file", [] { models::read_bert_sizes(ConfigFolder().path()); }, "config.json",
                   ErrorKind::kIo}});
}

}  // namespace
}  // namespace sluice::test
