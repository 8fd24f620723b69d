#include "sluice/models/gpt/gpt_module.h"

#include <fmt/format.h>

#include <cmath>
#include <numeric>

#include "sluice/ops/ops.h"

namespace sluice::models::internal {
namespace {

constexpr double kDeviation = 0.02;  // The deviation of first weights.

// x·weight + bias with normal first weights. GPT-2 stores weights as (in, out), Llama transposed.
class Dense : public nn::Module {
 public:
  Dense(int64_t out, const GptSizes& s, double deviation = kDeviation)
      : out_(out), arch_(s.arch), deviation_(deviation) {}
  Tensor weight(nn::Builder& b, const Tensor& x) const {
    nn::VariableFactory weight({{x.dim(-1), out_}, x.dtype(), {}}, nn::normal(0, deviation_));
    if (arch_ == Arch::kLlama)
      weight.set_torch({.variable = "weight", .name = "weight", .transposed = true});
    return b.add_variable_input("weight", weight);
  }
  Tensor build(nn::Builder& b, Tensor x) const {
    const Tensor y = ops::matmul(x, weight(b, x));
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
  if (s.arch == Arch::kGpt2) return b.inlined(name, nn::LayerNorm(1, s.epsilon), x);
  return b.inlined(name, nn::RMSNorm(1, s.epsilon), x);
}

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

// The table of the positions of a sample.
struct Positions {
  const GptSizes& s;
  // Returns the rows of `positions`; all rows if it is empty.
  Tensor build(nn::Builder& b, const Tensor& positions) const {
    const Tensor table =
        b.add_variable_input("weight", nn::normal(0, kDeviation), {s.context, s.width});
    // A row after the context is padding, and its numbers must be finite.
    return positions.valid() ? ops::gather(table, positions, {.zero_out_of_range = true}) : table;
  }
};

struct TokenTable {
  const GptSizes& s;
  Tensor build(nn::Builder& b, const Tensor& tokens) const {
    return ops::gather(
        b.add_variable_input("weight", nn::normal(0, kDeviation), {s.vocabulary, s.width}), tokens);
  }
};

// Writes rows t (1, n, columns) over rows step·n to step·n + n - 1 of `cache`. Returns its new
// version.
Tensor write_rows(const Tensor& cache, const Tensor& t, const Tensor& step) {
  const int64_t n = t.dim(1), columns = t.dim(2);
  const Tensor groups = n == 1 ? cache : ops::reshape_(cache, {cache.dim(0) / n, n * columns});
  return ops::update_row_(groups, ops::reshape(t, {n * columns}), step);
}

// A weight of the logits that is a variable of its own.
struct HeadWeight {
  const GptSizes& s;
  Tensor build(nn::Builder& b, const Tensor& x) const {
    return Dense(s.vocabulary, s).weight(b, x);
  }
};

}  // namespace

Tensor SelfAttention::in_heads(const Tensor& t, int64_t heads) const {
  const int64_t size = s_.width / s_.heads;
  if (t.dim(1) == 1) return ops::reshape(t, {t.dim(0), heads, 1, size});
  return ops::transpose(ops::reshape(t, {t.dim(0), t.dim(1), heads, size}), {0, 2, 1, 3});
}

Tensor SelfAttention::merged(const Tensor& t) const {
  const Shape rows{t.dim(0), t.dim(2), t.dim(1) * t.dim(3)};
  return ops::reshape(t.dim(2) == 1 ? t : ops::transpose(t, {0, 2, 1, 3}), rows);
}

Tensor SelfAttention::attend_to_cache(const Tensor& q, const Tensor& k, const Tensor& v,
                                      const CachedRows& rows, const KvCache& cache) const {
  const auto heads = [&](const Tensor& t) {
    const int64_t size = s_.width / s_.heads, length = cache.keys.dim(0);
    return ops::transpose(ops::reshape(t, {1, length, s_.kv_heads, size}), {0, 2, 1, 3});
  };
  const Tensor keys = write_rows(cache.keys, k, rows.step);
  const Tensor values = write_rows(cache.values, v, rows.step);
  return ops::attention(q, heads(keys), heads(values), {.causal = true, .position = rows.first});
}

Tensor SelfAttention::build(nn::Builder& b, const Tensor& x, const CachedRows* rows,
                            const KvCache* cache) const {
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
  Tensor q = in_heads(parts[0], s_.heads), k = in_heads(parts[1], s_.kv_heads);
  if (s_.arch == Arch::kLlama) {
    const Tensor table =
        rows != nullptr
            ? rows->angles
            : ops::rotary_table(b.graph(),
                                {.positions = x.dim(1), .size = size, .base = s_.rotary_base});
    q = ops::rotary(q, table);
    k = ops::rotary(k, table);
  }
  Tensor y;
  if (rows != nullptr) {
    y = attend_to_cache(q, s_.arch == Arch::kLlama ? merged(k) : parts[1], parts[2], *rows, *cache);
  } else {
    ops::AttentionOptions o{.causal = true};
    if (s_.dropout > 0 && b.mode() == nn::RunMode::kTrain) {
      o.dropout = s_.dropout;
      o.seed = nn::fold_seed(b.seed(), b.path());
    }
    y = ops::attention(q, k, in_heads(parts[2], s_.kv_heads), o);
  }
  return b.inlined(s_.arch == Arch::kGpt2 ? "c_proj" : "o_proj",
                   Dense(s_.width, s_, residual_deviation(s_)), merged(y));
}

Tensor TransformerBlock::build(nn::Builder& b, Tensor x, const CachedRows* rows,
                               const KvCache* cache) const {
  const bool gpt2 = s_.arch == Arch::kGpt2;
  const auto add = [&](const char* norm, const char* name, const auto& part, const auto&... more) {
    const Tensor y = b.inlined(name, part, normalized(b, norm, s_, x), more...);
    x = x + b.inlined(std::string(name) + "_dropout", nn::Dropout(s_.dropout), y);
  };
  add(gpt2 ? "ln_1" : "input_layernorm", gpt2 ? "attn" : "self_attn", SelfAttention(s_), rows,
      cache);
  add(gpt2 ? "ln_2" : "post_attention_layernorm", "mlp", Mlp(s_));
  return x;
}

Gpt::Gpt(const GptSizes& s) : s_(s), blocks_(*this, s.arch == Arch::kGpt2 ? "h" : "layers") {
  for (int64_t i = 0; i < s.blocks; ++i) {
    blocks_.add(s);
    blocks_[static_cast<size_t>(i)].in_block(fmt::format("block.{}", i));
  }
}

Tensor Gpt::embedded(nn::Builder& b, const Tensor& tokens, const Tensor& positions) const {
  const nn::Block block(b, "embedding");
  const bool gpt2 = s_.arch == Arch::kGpt2;
  Tensor x = b.inlined(gpt2 ? "wte" : "embed_tokens", TokenTable{s_}, tokens);
  if (gpt2) x = x + b.inlined("wpe", Positions{s_}, positions);
  return b.inlined("dropout", nn::Dropout(s_.dropout), x);
}

Gpt::Head Gpt::head(nn::Builder& b, const Tensor& x) const {
  const bool gpt2 = s_.arch == Arch::kGpt2, tied = gpt2 || s_.tied;
  const Tensor rows = normalized(b, gpt2 ? "ln_f" : "norm", s_, x);
  const Tensor weight = tied ? b.variable(gpt2 ? "wte.weight" : "embed_tokens.weight")
                             : b.inlined("lm_head", HeadWeight{s_}, rows);
  return {rows, weight, {.transposed = tied, .chunk_rows = s_.loss_rows}};
}

Tensor Gpt::logits(nn::Builder& b, const Tensor& x) const {
  const nn::Block block(b, "head");
  const Head h = head(b, x);
  return ops::matmul(h.rows, h.weight, {.rhs_transposed = h.options.transposed});
}

train::Results Gpt::build(nn::Builder& b, const train::Inputs& in) const {
  Tensor x = embedded(b, in["tokens"], {});
  for (const auto& block : blocks_) x = block(b, x);
  const bool trains = in.mode() == nn::RunMode::kTrain;
  if (!trains && s_.results == TokenResults::kLogits) return logit_results(b, in, logits(b, x));
  const nn::Block block(b, "head");
  const Head h = head(b, x);
  if (trains)
    return {.losses = {train::vocabulary_cross_entropy(h.rows, h.weight, in["labels"], h.options)}};
  train::VocabularyPredictions p =
      train::vocabulary_predictions(h.rows, h.weight, in["labels"], h.options);
  train::Results results{
      .predictions = {
          {.name = "losses", .value = p.losses},
          {.name = "predicted", .value = p.classes, .labels = "labels", .classes = s_.vocabulary}}};
  if (in.wants_losses()) results.losses = {std::move(p.loss)};
  return results;
}

train::Results Gpt::logit_results(nn::Builder& b, const train::Inputs& in,
                                  const Tensor& logits) const {
  train::Results results{.predictions = {{"logits", logits, "labels"}}};
  if (!in.wants_losses()) return results;
  const nn::Block block(b, "head");
  const Tensor flat = ops::reshape(logits, {-1, s_.vocabulary});
  results.losses = {train::cross_entropy(flat, ops::reshape(in["labels"], {-1}))};
  return results;
}

Tensor Gpt::build_cached(nn::Builder& b, const Tensor& tokens, CachedRows rows) const {
  const int64_t n = tokens.dim(1), length = rows.caches[0].keys.dim(0);
  Tensor positions;
  if (s_.arch == Arch::kGpt2) {
    std::vector<int32_t> offsets(static_cast<size_t>(n));
    std::iota(offsets.begin(), offsets.end(), 0);
    positions = ops::reshape(rows.first, {1, 1});
    if (n > 1)
      positions = positions + b.graph().constant(HostTensor::of<int32_t>({1, n}, i32, offsets));
  } else {
    const Tensor table = ops::rotary_table(
        b.graph(), {.positions = length, .size = s_.width / s_.heads, .base = s_.rotary_base});
    rows.angles = ops::rotary_rows(table, rows.first, n);
  }
  Tensor x = embedded(b, tokens, positions);
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const KvCache* const cache = &rows.caches[i];
    x = blocks_[i](b, x, &std::as_const(rows), cache);
  }
  return x;
}

}  // namespace sluice::models::internal
