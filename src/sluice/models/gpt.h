#pragma once
#include <cstdint>

#include "sluice/models/token_results.h"
#include "sluice/train/network.h"

namespace sluice::models {

/// The architecture of a language model.
enum class Arch {
  /// GPT-2: learned positions, layer norms, a perceptron with GELU (tanh), biases, and the table of
  /// tokens as the weight of the logits.
  kGpt2,
  /// Llama: rotary positions, RMS norms, SwiGLU, no biases, grouped heads, a weight of its own for
  /// the logits.
  kLlama,
};

struct GptSizes {
  Arch arch = Arch::kGpt2;
  int64_t blocks = 4;
  int64_t heads = 4;     ///< Heads of an attention; divides `width`.
  int64_t kv_heads = 0;  ///< Heads of keys and values; divides `heads`. 0: `heads`.
  int64_t width = 128;   ///< Elements of an embedding.
  int64_t hidden = 0;  ///< Elements of a hidden layer; 0: 4·width, or ⌈8/3·width⌉ for Llama.
  int64_t context = 64;        ///< Tokens of a sample.
  int64_t vocabulary = 0;      ///< Different tokens.
  double dropout = 0;          ///< Probability, in training.
  double rotary_base = 10000;  ///< For Llama.
  double epsilon = 1e-5;       ///< Added to variances and mean squares in norms.
  /// For Llama: the table of tokens is the weight of the logits too, as it always is in GPT-2.
  bool tied = false;
  int64_t micro_batch = 8;  ///< Samples of a micro-batch.
  int64_t eval_batch = 8;   ///< Samples of an evaluation step.
  /// Rows of a chunk of the loss (train::VocabularyLossOptions::chunk_rows).
  int64_t loss_rows = 0;
  TokenResults results = TokenResults::kLosses;  ///< Results of evaluation.
};

/// A language model: predicts the token after each of `tokens` (samples, context), int32. The field
/// `labels` has these tokens. The loss is the mean cross entropy, in chunks of rows if there are
/// many logits (train::vocabulary_cross_entropy), also in evaluation unless it returns all logits.
/// The weights have the names of Hugging Face's GPT-2 and Llama without "transformer." and
/// "model.". Error{kUsage} unless sizes are at least 1, the heads divide the width, kv_heads
/// divides the heads, dropout is in [0, 1), epsilon is positive and, for Llama, the elements of a
/// head are even and rotary_base is positive. Error{kUsage} from build() if loss_rows is not a
/// multiple of 32.
train::Network gpt(const GptSizes& sizes);

/// Returns the sizes, with zeros replaced by defaults. Errors as for gpt().
GptSizes complete_sizes(const GptSizes& sizes);

}  // namespace sluice::models
