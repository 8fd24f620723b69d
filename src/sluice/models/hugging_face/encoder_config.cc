// Sizes of encoders in the config.json of a checkpoint.
#include "sluice/base/checked.h"
#include "sluice/base/error.h"
#include "sluice/models/hugging_face/checkpoint.h"
#include "sluice/models/hugging_face/config_file.h"
#include "sluice/models/hugging_face/hugging_face.h"

namespace sluice::models {
namespace {

// Reads the settings that BERT and ViT share.
template <typename Sizes>
void read_encoder(const ConfigFile& c, const char* type, Sizes& s) {
  const std::string wanted = std::string("\"") + type + "\"";
  if (!c.has("model_type")) c.refuse("model_type", wanted);
  c.require_known("model_type", {type});
  c.require_known("hidden_act", {"gelu"});
  s.blocks = c.size("num_hidden_layers");
  s.heads = c.size("num_attention_heads");
  s.width = c.size("hidden_size");
  s.hidden = c.size("intermediate_size");
  s.epsilon = c.positive_or("layer_norm_eps", 1e-12);
  if (s.width % s.heads != 0)
    c.refuse("num_attention_heads", fmt::format("a divisor of 'hidden_size', {}", s.width));
}

template <typename Sizes>
nlohmann::json encoder_json(const char* type, const char* name, const Sizes& s) {
  return {{"model_type", type},
          {"architectures", {name}},
          {"num_hidden_layers", s.blocks},
          {"num_attention_heads", s.heads},
          {"hidden_size", s.width},
          {"intermediate_size", s.hidden == 0 ? checked_mul(4, s.width) : s.hidden},
          {"hidden_act", "gelu"},
          {"layer_norm_eps", s.epsilon},
          {"hidden_dropout_prob", s.dropout},
          {"attention_probs_dropout_prob", s.dropout},
          {"initializer_range", 0.02}};
}

// Reads the sides of an image, a number or a list of height and width.
void read_image(const ConfigFile& c, VitSizes& s) {
  const nlohmann::json& sides = c.value("image_size");
  if (sides.is_array()) {
    const auto is_side = [](const nlohmann::json& v) {
      return v.is_number_unsigned() && v.get<uint64_t>() >= 1 && v.get<uint64_t>() <= INT32_MAX;
    };
    if (sides.size() != 2 || !is_side(sides[0]) || !is_side(sides[1]))
      c.refuse("image_size", "an integer from 1 to 2147483647 or a list of two");
    s.image_height = sides[0].get<int64_t>();
    s.image_width = sides[1].get<int64_t>();
  } else {
    s.image_height = s.image_width = c.size("image_size");
  }
  s.patch = c.size("patch_size");
  if (s.image_height % s.patch != 0 || s.image_width % s.patch != 0)
    c.refuse("patch_size", fmt::format("a divisor of the sides of an image, {} and {}",
                                       s.image_height, s.image_width));
}

// Returns the number of classes. Transformers writes their names, unless there are two classes
// with the usual names.
int64_t read_classes(const ConfigFile& c) {
  if (!c.has("id2label")) return c.size_or("num_labels", 2);
  if (!c.value("id2label").is_object() || c.value("id2label").empty())
    c.refuse("id2label", "an object with a name for each class");
  return static_cast<int64_t>(c.value("id2label").size());
}

}  // namespace

BertSizes read_bert_sizes(const std::string& path, const BertSizes& given) {
  const ConfigFile c(config_path(path));
  BertSizes s = given;
  read_encoder(c, "bert", s);
  c.require_known("position_embedding_type", {"absolute"});
  c.require_known("is_decoder", {false});
  c.require_known("add_cross_attention", {false});
  c.require_known("tie_word_embeddings", {true});
  s.vocabulary = c.size("vocab_size");
  s.context = c.size("max_position_embeddings");
  s.segment_types = c.size_or("type_vocab_size", 2);
  s.padding = -1;
  if (c.has("pad_token_id")) {
    const nlohmann::json& v = c.value("pad_token_id");
    if (!v.is_number_unsigned() || v.get<uint64_t>() >= static_cast<uint64_t>(s.vocabulary))
      c.refuse("pad_token_id", fmt::format("null or a token below 'vocab_size', {}", s.vocabulary));
    s.padding = v.get<int64_t>();
  }
  return s;
}

VitSizes read_vit_sizes(const std::string& path, const VitSizes& given) {
  const ConfigFile c(config_path(path));
  VitSizes s = given;
  read_encoder(c, "vit", s);
  c.require_known("qkv_bias", {true});
  s.channels = c.size_or("num_channels", 3);
  s.classes = read_classes(c);
  read_image(c, s);
  return s;
}

void write_bert_config(const BertSizes& sizes, const std::string& path) {
  nlohmann::json json = encoder_json("bert", "BertForPreTraining", sizes);
  json.update({{"vocab_size", sizes.vocabulary},
               {"max_position_embeddings", sizes.context},
               {"type_vocab_size", sizes.segment_types},
               {"pad_token_id", nullptr},
               {"tie_word_embeddings", true}});
  if (sizes.padding >= 0) json["pad_token_id"] = sizes.padding;
  write_json(json, path);
}

void write_vit_config(const VitSizes& sizes, const std::string& path) {
  nlohmann::json json = encoder_json("vit", "ViTForImageClassification", sizes);
  json.update({{"num_channels", sizes.channels},
               {"image_size", sizes.image_height},
               {"patch_size", sizes.patch},
               {"qkv_bias", true}});
  if (sizes.image_width != sizes.image_height)
    json["image_size"] = {sizes.image_height, sizes.image_width};
  for (int64_t i = 0; i < sizes.classes; ++i) {
    const std::string index = std::to_string(i);
    json["id2label"][index] = "LABEL_" + index;
    json["label2id"]["LABEL_" + index] = i;
  }
  write_json(json, path);
}

}  // namespace sluice::models
