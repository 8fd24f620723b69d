#include "sluice/models/gpt.h"

#include <fmt/format.h>

#include <cmath>

#include "sluice/models/model.h"
#include "sluice/nn/layers.h"
#include "sluice/ops/ops.h"

namespace sluice::models {
namespace {

constexpr double kDeviation = 0.02;  // The deviation of first weights.

// x·weight + bias with normal first weights. GPT-2 stores weights as (in, out), Llama transposed.
class Dense : public nn::Module {
 public:
  Dense(int64_t out, const GptSizes& s, double deviation = kDeviation)
      : out_(out), arch_(s.arch), deviation_(deviation) {}
  Tensor build(nn::Builder& b, Tensor x) const {
    nn::VariableFactory weight({{x.dim(-1), out_}, x.dtype(), {}}, nn::normal(0, deviation_));
    if (arch_ == Arch::kLlama)
      weight.set_torch({.variable = "weight", .name = "weight", .transposed = true});
    const Tensor y = ops::matmul(x, b.add_variable_input("weight", weight));
    if (arch_ == Arch::kLlama) return y;
    return y + b.add_variable_input("bias", nn::zeros(), {out_}, x.dtype());
  }

 private:
  int64_t out_;
  Arch arch_;
  double deviation_;
};

// The deviation of a layer whose result is added to the stream, so that the stream's variance does
// not grow with the blocks (Radford et al., 2019).
double residual_deviation(const GptSizes& s) {
  return kDeviation / std::sqrt(2 * static_cast<double>(s.blocks));
}

Tensor normalized(nn::Builder& b, const std::string& name, const GptSizes& s, const Tensor& x) {
  if (s.arch == Arch::kGpt2) return b.inlined(name, nn::LayerNorm(), x);
  return b.inlined(name, nn::RMSNorm(1, 1e-5), x);
}

class SelfAttention : public nn::Module {
 public:
  explicit SelfAttention(const GptSizes& s) : s_(s) {}
  Tensor build(nn::Builder& b, Tensor x) const {
    const int64_t size = s_.width / s_.heads, kv_width = size * s_.kv_heads;
    Tensors parts;
    if (s_.arch == Arch::kGpt2) {
      const Dense all(s_.width + 2 * kv_width, s_);
      parts = ops::split(b.inlined("c_attn", all, x), {s_.width, kv_width, kv_width}, 2);
    } else {
      parts = {b.inlined("q_proj", Dense(s_.width, s_), x),
               b.inlined("k_proj", Dense(kv_width, s_), x),
               b.inlined("v_proj", Dense(kv_width, s_), x)};
    }
    const auto in_heads = [&](const Tensor& t, int64_t heads) {
      return ops::transpose(ops::reshape(t, {t.dim(0), t.dim(1), heads, size}), {0, 2, 1, 3});
    };
    Tensor q = in_heads(parts[0], s_.heads), k = in_heads(parts[1], s_.kv_heads);
    if (s_.arch == Arch::kLlama) {
      const Tensor table = ops::rotary_table(
          b.graph(), {.positions = x.dim(1), .size = size, .base = s_.rotary_base});
      q = ops::rotary(q, table);
      k = ops::rotary(k, table);
    }
    ops::AttentionOptions o{.causal = true};
    if (s_.dropout > 0 && b.mode() == nn::RunMode::kTrain) {
      o.dropout = s_.dropout;
      o.seed = nn::fold_seed(b.seed(), b.path());
    }
    const Tensor y = ops::attention(q, k, in_heads(parts[2], s_.kv_heads), o);
    const Tensor merged =
        ops::reshape(ops::transpose(y, {0, 2, 1, 3}), {x.dim(0), x.dim(1), s_.width});
    return b.inlined(s_.arch == Arch::kGpt2 ? "c_proj" : "o_proj",
                     Dense(s_.width, s_, residual_deviation(s_)), merged);
  }

 private:
  GptSizes s_;
};

class Mlp : public nn::Module {
 public:
  explicit Mlp(const GptSizes& s) : s_(s) {}
  Tensor build(nn::Builder& b, Tensor x) const {
    const Dense down(s_.width, s_, residual_deviation(s_));
    if (s_.arch == Arch::kGpt2)
      return b.inlined("c_proj", down, ops::gelu(b.inlined("c_fc", Dense(s_.hidden, s_), x)));
    const Tensor gate = ops::swish(b.inlined("gate_proj", Dense(s_.hidden, s_), x));
    return b.inlined("down_proj", down, gate * b.inlined("up_proj", Dense(s_.hidden, s_), x));
  }

 private:
  GptSizes s_;
};

class TransformerBlock : public nn::Module {
 public:
  explicit TransformerBlock(const GptSizes& s) : s_(s) {}
  Tensor build(nn::Builder& b, Tensor x) const {
    const bool gpt2 = s_.arch == Arch::kGpt2;
    const auto add = [&](const char* norm, const char* name, const auto& part) {
      const Tensor y = b.inlined(name, part, normalized(b, norm, s_, x));
      x = x + b.inlined(std::string(name) + "_dropout", nn::Dropout(s_.dropout), y);
    };
    add(gpt2 ? "ln_1" : "input_layernorm", gpt2 ? "attn" : "self_attn", SelfAttention(s_));
    add(gpt2 ? "ln_2" : "post_attention_layernorm", "mlp", Mlp(s_));
    return x;
  }

 private:
  GptSizes s_;
};

class Gpt : public nn::Module {
 public:
  explicit Gpt(const GptSizes& s) : s_(s), blocks_(*this, s.arch == Arch::kGpt2 ? "h" : "layers") {
    for (int64_t i = 0; i < s.blocks; ++i) {
      blocks_.add(s);
      blocks_[static_cast<size_t>(i)].in_block(fmt::format("block.{}", i));
    }
  }

  train::Results build(nn::Builder& b, const train::Inputs& in) const {
    const bool gpt2 = s_.arch == Arch::kGpt2;
    Tensor x;
    {
      const nn::Block block(b, "embedding");
      x = embed(b, gpt2 ? "wte" : "embed_tokens", s_.vocabulary, in["tokens"]);
      if (gpt2) x = x + b.inlined("wpe", Positions{s_}, x);
      x = b.inlined("dropout", nn::Dropout(s_.dropout), x);
    }
    for (const auto& block : blocks_) x = block(b, x);
    const nn::Block block(b, "head");
    x = normalized(b, gpt2 ? "ln_f" : "norm", s_, x);
    const Tensor logits = gpt2 ? ops::matmul(x, b.variable("wte.weight"), {.rhs_transposed = true})
                               : b.inlined("lm_head", Dense(s_.vocabulary, s_), x);
    train::Results results;
    if (in.mode() == nn::RunMode::kEvaluate)
      results.predictions = {{.name = "logits", .value = logits, .labels = "labels"}};
    if (in.wants_losses()) {
      const int64_t rows = x.dim(0) * x.dim(1);
      results.losses = {train::cross_entropy(ops::reshape(logits, {rows, s_.vocabulary}),
                                             ops::reshape(in["labels"], {rows}))};
    }
    return results;
  }

 private:
  // The table of the positions of a sample.
  struct Positions {
    const GptSizes& s;
    Tensor build(nn::Builder& b, const Tensor& x) const {
      return b.add_variable_input("weight", nn::normal(0, kDeviation), {s.context, s.width},
                                  x.dtype());
    }
  };
  struct Table {
    const GptSizes& s;
    int64_t rows;
    Tensor build(nn::Builder& b, const Tensor& tokens) const {
      return ops::gather(b.add_variable_input("weight", nn::normal(0, kDeviation), {rows, s.width}),
                         tokens);
    }
  };
  Tensor embed(nn::Builder& b, const std::string& name, int64_t rows, const Tensor& tokens) const {
    return b.inlined(name, Table{s_, rows}, tokens);
  }

  GptSizes s_;
  nn::Children<TransformerBlock> blocks_;
};

}  // namespace

train::Network gpt(const GptSizes& sizes) {
  GptSizes s = sizes;
  if (s.kv_heads == 0) s.kv_heads = s.heads;
  if (s.hidden == 0) s.hidden = s.arch == Arch::kGpt2 ? 4 * s.width : (8 * s.width + 2) / 3;
  for (const auto& [name, size] : {std::pair<const char*, int64_t>{"blocks", s.blocks},
                                   {"heads", s.heads},
                                   {"kv_heads", s.kv_heads},
                                   {"width", s.width},
                                   {"hidden", s.hidden},
                                   {"context", s.context},
                                   {"vocabulary", s.vocabulary},
                                   {"micro_batch", s.micro_batch},
                                   {"eval_batch", s.eval_batch}})
    require(size >= 1, "gpt: {} must be at least 1, got {}", name, size);
  require(s.width % s.heads == 0, "gpt: heads must divide the width, {}, got {}", s.width, s.heads);
  require(s.heads % s.kv_heads == 0, "gpt: kv_heads must divide the heads, {}, got {}", s.heads,
          s.kv_heads);
  require(s.dropout >= 0 && s.dropout < 1, "gpt: dropout must be in [0, 1), got {}", s.dropout);
  if (s.arch == Arch::kLlama) {
    require(s.width / s.heads % 2 == 0,
            "gpt: a head of Llama must have an even number of elements, got {} of width {}",
            s.width / s.heads, s.width);
    require(s.rotary_base > 0, "gpt: rotary_base must be positive, got {}", s.rotary_base);
  }
  const TensorSpec tokens{{s.micro_batch, s.context}, i32, {}};
  const TensorSpec eval{{s.eval_batch, s.context}, i32, {}};
  return train::Network(Gpt(s), {{"tokens", tokens, eval}, {"labels", tokens, eval}});
}

GptSizes gpt_sizes(const Sizes& s) {
  return {.arch = s.arch,
          .blocks = s.blocks,
          .heads = s.heads,
          .kv_heads = s.kv_heads,
          .width = s.width,
          .context = s.context,
          .vocabulary = s.vocabulary,
          .dropout = s.dropout,
          .micro_batch = s.micro_batch,
          .eval_batch = s.eval_batch};
}

Model gpt_model() {
  return {.name = "gpt",
          .doc = "a language model with the architecture of GPT-2 or Llama, on text",
          .data = &kTexts,
          .defaults = {{"--width", "128"},
                       {"--micro-batch", "12"},
                       {"--test-batch", "12"},
                       {"--optimizer", "adamw"}},
          .sizes = {"--arch", "--blocks", "--heads", "--kv-heads", "--width", "--context",
                    "--vocab", "--dropout"},
          .metrics = {Metric::kLoss, Metric::kPerplexity, Metric::kAccuracy},
          .test_sizes = {.micro_batch = 2,
                         .eval_batch = 4,
                         .width = 16,
                         .dropout = 0.25,
                         .blocks = 2,
                         .heads = 4,
                         .kv_heads = 2,
                         .context = 8},
          .saves_sizes = true,
          .build = [](const Sizes& s) { return gpt(gpt_sizes(s)); }};
}

}  // namespace sluice::models
