#include "sluice/models/encoders/bert.h"

#include <fmt/format.h>

#include "sluice/base/checked.h"
#include "sluice/models/encoders/encoder_parts.h"
#include "sluice/ops/ops.h"

namespace sluice::models {
namespace {

constexpr nn::WeightInit kBertInit = nn::WeightInit::kNormal;
constexpr double kBertDeviation = 0.02;  // The deviation of first values of tables.
constexpr int64_t kIgnored = -100;       // The label of tokens that are not predicted.

// LayerNorm(x + dropout(y)), the end of each half of a layer.
Tensor add_and_normalize(nn::Builder& b, const BertSizes& s, const Tensor& x, const Tensor& y) {
  const Tensor dropped = b.inlined("dropout", nn::Dropout(s.dropout), y);
  return b.inlined("LayerNorm", nn::LayerNorm(1, s.epsilon), x + dropped);
}

// The layer `dense` on y, added to x and normalized.
struct BertOutput {
  const BertSizes& s;
  Tensor build(nn::Builder& b, const Tensor& x, const Tensor& y) const {
    const nn::Linear dense(s.width, nn::Bias::kAdd, kBertInit);
    return add_and_normalize(b, s, x, b.inlined("dense", dense, y));
  }
};

class BertLayer : public nn::Module {
 public:
  explicit BertLayer(const BertSizes& s) : s_(s) {}
  Tensor build(nn::Builder& b, Tensor x, Tensor mask) const {
    {
      nn::Builder attention(b, "attention");
      const internal::EncoderAttention self(s_.heads, s_.dropout, kBertInit);
      const Tensor y = attention.inlined("self", self, x, mask);
      x = attention.inlined("output", BertOutput{s_}, x, y);
    }
    const Tensor y = ops::gelu_erf(internal::dense(b, "intermediate", s_.hidden, kBertInit, x));
    return b.inlined("output", BertOutput{s_}, x, y);
  }

 private:
  BertSizes s_;
};

// A table of embeddings. The row of the padding is 0 at first.
struct BertTable {
  int64_t rows;
  int64_t width;
  int64_t padding = -1;
  Tensor weight(nn::Builder& b) const {
    Initializer first = nn::normal(0, kBertDeviation);
    if (padding >= 0) first = first.zeroed(padding * width, (padding + 1) * width);
    return b.add_variable_input("weight", std::move(first), {rows, width});
  }
  Tensor build(nn::Builder& b, const Tensor& indices) const {
    const Tensor y = ops::gather(weight(b), indices);
    if (padding < 0 || b.mode() == nn::RunMode::kEvaluate) return y;
    const Tensor is_padding = ops::equal(indices, static_cast<double>(padding));
    return ops::where(ops::unsqueeze(is_padding, -1), ops::detach(y), y);
  }
};

// The rows of all positions.
struct BertPositions {
  const BertSizes& s;
  Tensor build(nn::Builder& b) const { return BertTable{s.context, s.width}.weight(b); }
};

class BertEmbeddings : public nn::Module {
 public:
  explicit BertEmbeddings(const BertSizes& s) : s_(s) {}
  Tensor build(nn::Builder& b, Tensor tokens, Tensor segments) const {
    const BertTable words{s_.vocabulary, s_.width, s_.padding};
    const BertTable types{s_.segment_types, s_.width};
    Tensor x = b.inlined("word_embeddings", words, tokens) +
               b.inlined("token_type_embeddings", types, segments);
    x = x + b.inlined("position_embeddings", BertPositions{s_});
    x = b.inlined("LayerNorm", nn::LayerNorm(1, s_.epsilon), x);
    return b.inlined("dropout", nn::Dropout(s_.dropout), x);
  }

 private:
  BertSizes s_;
};

// The rows and the bias of the tokens' logits, whose weight is the table of tokens.
struct BertPredictions {
  const BertSizes& s;
  std::pair<Tensor, Tensor> build(nn::Builder& b, const Tensor& x) const {
    Tensor y;
    {
      nn::Builder transform(b, "transform");
      const nn::Linear dense(s.width, nn::Bias::kAdd, kBertInit);
      y = ops::gelu_erf(transform.inlined("dense", dense, x));
      y = transform.inlined("LayerNorm", nn::LayerNorm(1, s.epsilon), y);
    }
    return {y, b.add_variable_input("bias", nn::zeros(), {s.vocabulary})};
  }
};

class Bert : public nn::Module {
 public:
  explicit Bert(const BertSizes& s) : s_(s) {}

  train::Results build(nn::Builder& b, const train::Inputs& in) const {
    const Tensor x = encoded(b, in);
    const nn::Block block(b, "head");
    const Tensor pooled = [&] {
      nn::Builder bert(b, "bert");
      return ops::tanh(internal::dense(bert, "pooler", s_.width, kBertInit, ops::select(x, 0, 1)));
    }();
    const Tensor table = b.variable("bert.embeddings.word_embeddings.weight");
    nn::Builder cls(b, "cls");
    const auto [rows, bias] = cls.inlined("predictions", BertPredictions{s_}, x);
    const Tensor next =
        cls.inlined("seq_relationship", nn::Linear(2, nn::Bias::kAdd, kBertInit), pooled);
    const train::VocabularyLossOptions options{.transposed = true,
                                               .bias = bias,
                                               .chunk_rows = s_.loss_rows,
                                               .ignore_index = kIgnored,
                                               .name = "token_loss"};
    if (in.mode() == nn::RunMode::kTrain) {
      return {.losses = with_next_loss(
                  train::vocabulary_cross_entropy(rows, table, in["labels"], options), next,
                  in["next"])};
    }
    train::Results results;
    if (s_.results == TokenResults::kLogits) {
      const Tensor logits = ops::matmul(rows, table, {.rhs_transposed = true}) + bias;
      results.predictions = {{"logits", logits, "labels", {}, kIgnored},
                             {"next_logits", next, "next"}};
      if (!in.wants_losses()) return results;
      const nn::CrossEntropyOptions ignoring{.ignore_index = kIgnored};
      results.losses = {
          train::cross_entropy(ops::reshape(logits, {-1, s_.vocabulary}),
                               ops::reshape(in["labels"], {-1}), ignoring, options.name),
          next_loss(next, in["next"])};
      return results;
    }
    train::VocabularyPredictions p =
        train::vocabulary_predictions(rows, table, in["labels"], options);
    results.predictions = {{.name = "losses", .value = p.losses},
                           {"predicted", p.classes, "labels", {}, kIgnored, s_.vocabulary},
                           {"next_logits", next, "next"}};
    if (in.wants_losses()) results.losses = {std::move(p.loss), next_loss(next, in["next"])};
    return results;
  }

 private:
  Tensor encoded(nn::Builder& b, const train::Inputs& in) const {
    nn::Builder bert(b, "bert");
    Tensor x, mask;
    {
      const nn::Block block(bert, "embedding");
      x = bert.inlined("embeddings", BertEmbeddings(s_), in["tokens"], in["segments"]);
      mask = ops::unsqueeze(ops::not_equal(in["mask"], 0.0), {1, 2});
    }
    nn::Builder encoder(bert, "encoder");
    nn::Builder layers(encoder, "layer");
    for (int64_t i = 0; i < s_.blocks; ++i) {
      const nn::Block block(layers, fmt::format("block.{}", i));
      x = layers.inlined(std::to_string(i), BertLayer(s_), x, mask);
    }
    return x;
  }

  static train::Loss next_loss(const Tensor& next, const Tensor& labels) {
    return {.name = "next_loss", .value = ops::cross_entropy(next, labels)};
  }

  // In training, both losses are sums with one total weight: the number of labels.
  static std::vector<train::Loss> with_next_loss(train::Loss tokens, const Tensor& next,
                                                 const Tensor& labels) {
    train::Loss follows = next_loss(next, labels);
    follows.value = follows.value * tokens.total_weight;
    follows.total_weight = tokens.total_weight;
    return {std::move(tokens), std::move(follows)};
  }

  BertSizes s_;
};

}  // namespace

train::Network bert(const BertSizes& sizes) {
  BertSizes s = sizes;
  if (s.hidden == 0) s.hidden = checked_mul(4, s.width);
  internal::check_encoder({"bert", s.blocks, s.heads, s.width, s.hidden, s.micro_batch,
                           s.eval_batch, s.dropout, s.epsilon});
  for (const auto& [name, size] : {std::pair<const char*, int64_t>{"context", s.context},
                                   {"vocabulary", s.vocabulary},
                                   {"segment_types", s.segment_types}})
    internal::check_size("bert", name, size);
  require(s.padding >= -1 && s.padding < s.vocabulary,
          "bert: padding must be -1 or a token below {}, got {}", s.vocabulary, s.padding);
  const auto field = [&](const char* name) {
    return train::Field{name,
                        {{s.micro_batch, s.context}, i32, {}},
                        TensorSpec{{s.eval_batch, s.context}, i32, {}}};
  };
  return train::Network(
      Bert(s), {field("tokens"),
                field("segments"),
                field("mask"),
                field("labels"),
                {"next", {{s.micro_batch}, i32, {}}, TensorSpec{{s.eval_batch}, i32, {}}}});
}

}  // namespace sluice::models
