#include "sluice/models/encoders/vit.h"

#include <fmt/format.h>

#include "sluice/base/checked.h"
#include "sluice/models/encoders/encoder_parts.h"
#include "sluice/ops/ops.h"

namespace sluice::models {
namespace {

constexpr nn::WeightInit kVitInit = nn::WeightInit::kTruncatedNormal;

// Patches after the class token, with their positions.
class PatchEmbeddings : public nn::Module {
 public:
  explicit PatchEmbeddings(const VitSizes& s) : s_(s) {}
  Tensor build(nn::Builder& b, Tensor image) const {
    const nn::Conv2d projection(
        {.channels = s_.width, .kernel = {s_.patch}, .stride = {s_.patch}, .init = kVitInit});
    Tensor patches;
    {
      nn::Builder embeddings(b, "patch_embeddings");
      patches = ops::flatten(embeddings.inlined("projection", projection, image), 2);
    }
    patches = ops::transpose(patches, {0, 2, 1});
    const auto table = [&](const char* name, int64_t rows) {
      return b.add_variable_input(name, nn::truncated_normal(0, 0.02), {1, rows, s_.width});
    };
    const Tensor token = ops::broadcast_to(table("cls_token", 1), {patches.dim(0), 1, s_.width});
    const Tensor x = ops::concat({token, patches}, 1);
    return b.inlined("dropout", nn::Dropout(s_.dropout),
                     x + table("position_embeddings", x.dim(1)));
  }

 private:
  VitSizes s_;
};

class VitLayer : public nn::Module {
 public:
  explicit VitLayer(const VitSizes& s) : s_(s) {}
  Tensor build(nn::Builder& b, Tensor x) const {
    const auto normalized = [&](const char* name) {
      return b.inlined(name, nn::LayerNorm(1, s_.epsilon), x);
    };
    const auto add = [&](const char* name, const Tensor& y) {
      x = x + b.inlined(name, nn::Dropout(s_.dropout), y);
    };
    Tensor y = normalized("layernorm_before");
    {
      nn::Builder attention(b, "attention");
      const internal::EncoderAttention self(s_.heads, s_.dropout, kVitInit);
      y = attention.inlined("attention", self, y, Tensor());
      y = internal::dense(attention, "output", s_.width, kVitInit, y);
    }
    add("attention_dropout", y);
    y = internal::dense(b, "intermediate", s_.hidden, kVitInit, normalized("layernorm_after"));
    add("output_dropout", internal::dense(b, "output", s_.width, kVitInit, ops::gelu_erf(y)));
    return x;
  }

 private:
  VitSizes s_;
};

class Vit : public nn::Module {
 public:
  explicit Vit(const VitSizes& s) : s_(s) {}
  train::Results build(nn::Builder& b, const train::Inputs& in) const {
    Tensor x = encoded(b, in["input"]);
    const nn::Block block(b, "head");
    {
      nn::Builder vit(b, "vit");
      // The norm is that of each row, and only the class token's matters.
      x = vit.inlined("layernorm", nn::LayerNorm(1, s_.epsilon), ops::select(x, 0, 1));
    }
    const nn::Linear classifier(s_.classes, nn::Bias::kAdd, kVitInit);
    const Tensor logits = b.inlined("classifier", classifier, x);
    train::Results results;
    if (in.mode() == nn::RunMode::kEvaluate)
      results.predictions = {{.name = "logits", .value = logits, .labels = "labels"}};
    if (in.wants_losses()) results.losses = {train::cross_entropy(logits, in["labels"])};
    return results;
  }

 private:
  Tensor encoded(nn::Builder& b, const Tensor& image) const {
    nn::Builder vit(b, "vit");
    Tensor x;
    {
      const nn::Block block(vit, "embedding");
      x = vit.inlined("embeddings", PatchEmbeddings(s_), image);
    }
    nn::Builder encoder(vit, "encoder");
    nn::Builder layers(encoder, "layer");
    for (int64_t i = 0; i < s_.blocks; ++i) {
      const nn::Block block(layers, fmt::format("block.{}", i));
      x = layers.inlined(std::to_string(i), VitLayer(s_), x);
    }
    return x;
  }

  VitSizes s_;
};

}  // namespace

train::Network vit(const VitSizes& sizes) {
  VitSizes s = sizes;
  if (s.hidden == 0) s.hidden = checked_mul(4, s.width);
  internal::check_encoder({"vit", s.blocks, s.heads, s.width, s.hidden, s.micro_batch, s.eval_batch,
                           s.dropout, s.epsilon});
  for (const auto& [name, size] : {std::pair<const char*, int64_t>{"channels", s.channels},
                                   {"image_height", s.image_height},
                                   {"image_width", s.image_width},
                                   {"patch", s.patch},
                                   {"classes", s.classes}})
    internal::check_size("vit", name, size);
  require(s.image_height % s.patch == 0 && s.image_width % s.patch == 0,
          "vit: patch must divide the sides of an image, {} and {}, got {}", s.image_height,
          s.image_width, s.patch);
  const auto images = [&](int64_t samples) {
    return TensorSpec{{samples, s.channels, s.image_height, s.image_width}, f32, {}};
  };
  const auto labels = [](int64_t samples) { return TensorSpec{{samples}, i32, {}}; };
  return train::Network(Vit(s), {{"input", images(s.micro_batch), images(s.eval_batch)},
                                 {"labels", labels(s.micro_batch), labels(s.eval_batch)}});
}

}  // namespace sluice::models
