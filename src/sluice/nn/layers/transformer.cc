#include "sluice/nn/sequences.h"

#include <cmath>

#include "sluice/nn/layers/common.h"
#include "sluice/ops/arithmetic.h"
#include "sluice/ops/attention.h"
#include "sluice/ops/concat.h"
#include "sluice/ops/matmul.h"
#include "sluice/ops/slice.h"
#include "sluice/ops/transpose.h"

namespace sluice::nn {
namespace {

// A linear layer whose bias begins at zero.
struct Projection {
  int64_t out;
  Bias bias;
  Tensor build(Builder& b, const Tensor& x) const {
    const int64_t in = x.dim(-1);
    VariableFactory weight({{in, out}, x.dtype(), {}}, fan_in_uniform(in));
    weight.set_torch({.variable = "weight", .name = "weight", .transposed = true});
    const Tensor y = ops::matmul(x, b.add_variable_input("weight", weight));
    if (bias == Bias::kNone) return y;
    return y + b.add_variable_input("bias", zeros(), {out}, x.dtype());
  }
};

// (batch, rows, heads·size) as (batch, heads, rows, size).
Tensor split_heads(const Tensor& t, int64_t heads) {
  const int64_t size = t.dim(2) / heads;
  return ops::transpose(ops::reshape(t, {t.dim(0), t.dim(1), heads, size}), {0, 2, 1, 3});
}

Tensor merge_heads(const Tensor& t) {
  return ops::reshape(ops::transpose(t, {0, 2, 1, 3}), {t.dim(0), t.dim(2), t.dim(1) * t.dim(3)});
}

void require_rows(const char* layer, const Tensor& x) {
  require(x.rank() == 3, "{}: input must be (batch, rows, width), got '{}' {}", layer, x.name(),
          to_string(x.spec()));
}

}  // namespace

MultiHeadAttention::MultiHeadAttention(MultiHeadAttentionOptions options) : options_(options) {
  if (options_.kv_heads == 0) options_.kv_heads = options_.heads;
  require(options_.heads >= 1, "MultiHeadAttention: heads must be at least 1, got {}",
          options_.heads);
  require(options_.kv_heads >= 1 && options_.heads % options_.kv_heads == 0,
          "MultiHeadAttention: kv_heads must divide the heads, {}, got {}", options_.heads,
          options_.kv_heads);
  require(options_.dropout >= 0 && options_.dropout < 1,
          "MultiHeadAttention: dropout must be in [0, 1), got {}", options_.dropout);
}

Tensor MultiHeadAttention::build(Builder& b, Tensor x, Tensor memory, Tensor mask) const {
  const MultiHeadAttentionOptions& o = options_;
  require_rows("MultiHeadAttention", x);
  require_rows("MultiHeadAttention", memory);
  const int64_t width = x.dim(2);
  require(width % o.heads == 0,
          "MultiHeadAttention: heads must divide the width of '{}' {}, got {}", x.name(),
          to_string(x.spec()), o.heads);
  const int64_t size = width / o.heads, kv_width = size * o.kv_heads;
  const bool same = x == memory;
  Tensors parts;  // Queries, keys and values.
  if (o.projections == Projections::kSeparate) {
    parts = {b.inlined("q_proj", Linear(width, o.bias, WeightInit::kUniform), x),
             b.inlined("k_proj", Linear(kv_width, o.bias, WeightInit::kUniform), memory),
             b.inlined("v_proj", Linear(kv_width, o.bias, WeightInit::kUniform), memory)};
  } else {
    require(memory.dim(2) == width,
            "MultiHeadAttention: a fused projection needs keys of width {}, got '{}' {}; use "
            "Projections::kSeparate",
            width, memory.name(), to_string(memory.spec()));
    const int64_t all = width + 2 * kv_width;
    VariableFactory factory({{width, all}, x.dtype(), {}},
                            xavier_uniform({.in = width, .out = all}));
    factory.set_torch({.variable = "in_proj_weight", .name = "in_proj_weight", .transposed = true});
    const Tensor weight = b.add_variable_input("in_proj_weight", factory);
    Tensor bias;
    if (o.bias == Bias::kAdd)
      bias = b.add_variable_input("in_proj_bias", zeros(), {all}, x.dtype());
    const auto project = [&](const Tensor& t, const Tensor& w, const Tensor& c) {
      const Tensor y = ops::matmul(t, w);
      return c.valid() ? y + c : y;
    };
    if (same) {
      parts = ops::split(project(x, weight, bias), {width, kv_width, kv_width}, 2);
    } else {
      const Tensors weights = ops::split(weight, {width, 2 * kv_width}, 1);
      Tensors biases(2);
      if (bias.valid()) biases = ops::split(bias, {width, 2 * kv_width}, 0);
      parts = {project(x, weights[0], biases[0])};
      for (const Tensor& t :
           ops::split(project(memory, weights[1], biases[1]), {kv_width, kv_width}, 2))
        parts.push_back(t);
    }
  }
  Tensor q = split_heads(parts[0], o.heads);
  Tensor k = split_heads(parts[1], o.kv_heads);
  if (o.rotary_base > 0) {
    const auto rotate = [&](const Tensor& t) {
      return ops::rotary(
          t, ops::rotary_table(b.graph(),
                               {.positions = t.dim(2), .size = size, .base = o.rotary_base}));
    };
    q = rotate(q);
    k = rotate(k);
  }
  ops::AttentionOptions attention{.causal = o.causal, .window = o.window, .mask = mask};
  if (o.dropout > 0 && b.mode() == RunMode::kTrain) {
    attention.dropout = o.dropout;
    attention.seed = fold_seed(b.seed(), b.path());
  }
  const Tensor y = ops::attention(q, k, split_heads(parts[2], o.kv_heads), attention);
  return b.inlined("out_proj", Projection{width, o.bias}, merge_heads(y));
}

std::string MultiHeadAttention::cache_key() const {
  const MultiHeadAttentionOptions& o = options_;
  return fmt::format("{} {} {} {} {} {} {} {}", o.heads, o.kv_heads, static_cast<int>(o.bias),
                     static_cast<int>(o.projections), o.causal, o.window, o.dropout, o.rotary_base);
}

namespace {

// The parts that an encoder layer and a decoder layer share.
class LayerParts {
 public:
  LayerParts(Builder& b, const TransformerLayerOptions& o) : b_(b), o_(o) {}

  // Adds f(x) to x, with the norm `norm` before f or after the sum.
  template <typename F>
  Tensor add(const Tensor& x, const std::string& norm, const std::string& dropout, F f) const {
    const auto normalized = [&](const Tensor& t) {
      return b_.inlined(norm, LayerNorm(1, o_.epsilon), t);
    };
    const auto dropped = [&](const Tensor& t) {
      return b_.inlined(dropout, Dropout(o_.dropout), t);
    };
    if (o_.norm_first) return x + dropped(f(normalized(x)));
    return normalized(x + dropped(f(x)));
  }
  Tensor attend(const std::string& name, bool causal, const Tensor& x, const Tensor& memory,
                const Tensor& mask) const {
    const MultiHeadAttention attention(
        {.heads = o_.heads, .causal = causal, .dropout = o_.dropout});
    return b_.inlined(name, attention, x, memory, mask);
  }
  Tensor perceptron(const Tensor& x) const {
    Tensor h = b_.inlined("linear1", Linear(o_.hidden, Bias::kAdd, WeightInit::kUniform), x);
    h = o_.activation == Activation::kRelu ? ops::relu(h) : ops::gelu_erf(h);
    h = b_.inlined("dropout", Dropout(o_.dropout), h);
    return b_.inlined("linear2", Linear(x.dim(-1), Bias::kAdd, WeightInit::kUniform), h);
  }

 private:
  Builder& b_;
  const TransformerLayerOptions& o_;
};

void check(const char* layer, const TransformerLayerOptions& o) {
  require(o.heads >= 1 && o.hidden >= 1, "{}: heads and hidden must be at least 1, got {} and {}",
          layer, o.heads, o.hidden);
  require(o.dropout >= 0 && o.dropout < 1, "{}: dropout must be in [0, 1), got {}", layer,
          o.dropout);
}

std::string key_of(const TransformerLayerOptions& o) {
  return fmt::format("{} {} {} {} {} {} {}", o.heads, o.hidden, o.dropout,
                     static_cast<int>(o.activation), o.norm_first, o.causal, o.epsilon);
}

}  // namespace

TransformerEncoderLayer::TransformerEncoderLayer(TransformerLayerOptions options)
    : options_(options) {
  check("TransformerEncoderLayer", options);
}

Tensor TransformerEncoderLayer::build(Builder& b, Tensor x, Tensor mask) const {
  const LayerParts parts(b, options_);
  x = parts.add(x, "norm1", "dropout1", [&](const Tensor& t) {
    return parts.attend("self_attn", options_.causal, t, t, mask);
  });
  return parts.add(x, "norm2", "dropout2", [&](const Tensor& t) { return parts.perceptron(t); });
}

std::string TransformerEncoderLayer::cache_key() const { return key_of(options_); }

TransformerDecoderLayer::TransformerDecoderLayer(TransformerLayerOptions options)
    : options_(options) {
  check("TransformerDecoderLayer", options);
}

Tensor TransformerDecoderLayer::build(Builder& b, Tensor x, Tensor memory, Tensor mask,
                                      Tensor memory_mask) const {
  const LayerParts parts(b, options_);
  x = parts.add(x, "norm1", "dropout1", [&](const Tensor& t) {
    return parts.attend("self_attn", options_.causal, t, t, mask);
  });
  x = parts.add(x, "norm2", "dropout2", [&](const Tensor& t) {
    return parts.attend("multihead_attn", false, t, memory, memory_mask);
  });
  return parts.add(x, "norm3", "dropout3", [&](const Tensor& t) { return parts.perceptron(t); });
}

std::string TransformerDecoderLayer::cache_key() const { return key_of(options_); }

}  // namespace sluice::nn
