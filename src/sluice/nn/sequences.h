#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "sluice/nn/layers.h"

/// Layers of sequences: attention, transformers and recurrent layers, with the semantics, names and
/// first values of PyTorch's classes.
namespace sluice::nn {

/// How MultiHeadAttention projects its inputs.
enum class Projections {
  /// One weight `in_proj_weight` (width, …) for queries, keys and values, as PyTorch's class.
  kFused,
  kSeparate,  ///< Layers `q_proj`, `k_proj` and `v_proj`, as Llama's.
};

struct MultiHeadAttentionOptions {
  int64_t heads = 0;     ///< Heads of the queries; divides the width of the input.
  int64_t kv_heads = 0;  ///< Heads of keys and values; divides `heads`. 0: `heads`.
  Bias bias = Bias::kAdd;
  Projections projections = Projections::kFused;
  bool causal = false;     ///< As in ops::AttentionOptions.
  int64_t window = 0;      ///< As in ops::AttentionOptions.
  double dropout = 0;      ///< Probability that a weight of the attention becomes zero.
  double rotary_base = 0;  ///< Base of a rotary embedding of queries and keys; 0: none.
};

/// Attention of several heads: projects queries, keys and values, computes ops::attention() and
/// projects the heads together by the layer `out_proj`. In training, dropout reads the seed of the
/// builder. First values equal PyTorch's: Xavier uniform for fused projections (their
/// biases are 0), uniform in ±1/√width otherwise; the bias of `out_proj` is 0.
class MultiHeadAttention : public Module {
 public:
  /// Error{kUsage} unless there are heads, kv_heads divides them and dropout is in [0, 1).
  explicit MultiHeadAttention(MultiHeadAttentionOptions options);
  /// Attention of x (batch, rows, width) to `memory` (batch, keys, any width); `memory` is x for
  /// self-attention with a mask. `mask` is that of ops::attention(): where a bool is true, a query
  /// sees a key. (PyTorch's class means the opposite.) Error{kUsage} unless the heads divide the
  /// width and a fused projection has equal widths.
  Tensor build(Builder& b, Tensor x, Tensor memory, Tensor mask = {}) const;
  /// Self-attention without a mask.
  Tensor build(Builder& b, Tensor x) const { return build(b, x, x); }
  std::string cache_key() const;

 private:
  MultiHeadAttentionOptions options_;
};

enum class Activation { kRelu, kGelu };

/// Options of TransformerEncoderLayer and TransformerDecoderLayer; the defaults are PyTorch's.
struct TransformerLayerOptions {
  int64_t heads = 0;      ///< Heads of each attention.
  int64_t hidden = 2048;  ///< Elements of the hidden layer of the perceptron.
  double dropout = 0.1;   ///< Probability after attentions and layers, and in attentions.
  Activation activation = Activation::kRelu;  ///< kGelu is exact.
  bool norm_first = false;  ///< Normalize before attention and perceptron, not after the sum.
  bool causal = false;      ///< Self-attention sees earlier rows only.
  double epsilon = 1e-5;    ///< Epsilon of the norms.
};

/// Self-attention `self_attn` and a perceptron `linear1`, `linear2`, each added to its input, with
/// layer norms `norm1` and `norm2`.
class TransformerEncoderLayer : public Module {
 public:
  explicit TransformerEncoderLayer(TransformerLayerOptions options);
  /// x is (batch, rows, width); `mask` is that of ops::attention().
  Tensor build(Builder& b, Tensor x, Tensor mask = {}) const;
  std::string cache_key() const;

 private:
  TransformerLayerOptions options_;
};

/// Does the same with an attention `multihead_attn` to `memory`, the result of an encoder, between
/// the two, and three norms.
class TransformerDecoderLayer : public Module {
 public:
  explicit TransformerDecoderLayer(TransformerLayerOptions options);
  Tensor build(Builder& b, Tensor x, Tensor memory, Tensor mask = {},
               Tensor memory_mask = {}) const;
  std::string cache_key() const;

 private:
  TransformerLayerOptions options_;
};

struct RecurrentOptions {
  int64_t hidden = 0;          ///< Features of a state; at least 1.
  int64_t layers = 1;          ///< Layers; each reads the results of the one below. At least 1.
  bool bidirectional = false;  ///< Each layer also reads the steps in descending order.
  bool batch_first = false;  ///< x and the output are (batch, steps, …), not (steps, batch, …).
  bool bias = true;          ///< Whether products get biases.
};

namespace internal {

/// The layers of recurrent cells of any kind.
class Recurrent : public Module {
 public:
  std::string cache_key() const;

 protected:
  /// A cell has `gates` products for each state element, and the states h and, perhaps, c.
  struct Cell {
    std::string name;
    int64_t gates;
    int64_t states;
  };
  Recurrent(Cell cell, const RecurrentOptions& options);
  /// Returns the output, then the last states. `first` are the states before step 0; empty: zeros.
  Tensors run(Builder& b, const Tensor& x, const Tensors& first) const;

 private:
  struct Step;

  Tensors direction(Builder& b, const Step& step, const Tensor& x, const Tensors& first,
                    const std::string& suffix) const;
  Graph& cell_graph(Builder& b, const TensorSpec& state) const;

  Cell cell_;
  RecurrentOptions options_;
};

}  // namespace internal

/// Long short-term memory (Hochreiter and Schmidhuber, 1997) like PyTorch's layer. With the gates
/// i, f, g, o of a step, c ← σ(f)·c + σ(i)·tanh(g) and h ← σ(o)·tanh(c). The variables have
/// PyTorch's names and shapes: for layer k `weight_ih_l<k>` (4·hidden, features), `weight_hh_l<k>`
/// (4·hidden, hidden), `bias_ih_l<k>` and `bias_hh_l<k>` (4·hidden), with the suffix `_reverse` for
/// descending steps. They are uniform in ±1/√hidden. Constructors throw Error{kUsage} unless hidden
/// and layers are at least 1.
class LSTM : public internal::Recurrent {
 public:
  explicit LSTM(const RecurrentOptions& options) : Recurrent({"LSTM", 4, 2}, options) {}
  /// Maps x (steps, batch, features) to {output (steps, batch, directions·hidden), h, c}. h and c
  /// are the last states (layers·directions, batch, hidden). The first states are zeros.
  /// Error{kUsage} unless x has three axes and a step.
  Tensors build(Builder& b, Tensor x) const { return run(b, x, {}); }
  /// Starts from the states h and c. Error{kUsage} for other shapes or dtypes.
  Tensors build(Builder& b, Tensor x, Tensor h, Tensor c) const { return run(b, x, {h, c}); }
};

/// Gated recurrent unit (Cho et al., 2014) like PyTorch's layer. With the gates r, z of a step,
/// n = tanh(x·W + b + σ(r)·(h·U + d)) and h ← (1 - σ(z))·n + σ(z)·h. The variables are those of
/// LSTM, with 3·hidden rows.
class GRU : public internal::Recurrent {
 public:
  explicit GRU(const RecurrentOptions& options) : Recurrent({"GRU", 3, 1}, options) {}
  /// As LSTM::build(), but returns {output, h}.
  Tensors build(Builder& b, Tensor x) const { return run(b, x, {}); }
  Tensors build(Builder& b, Tensor x, Tensor h) const { return run(b, x, {h}); }
};

}  // namespace sluice::nn
