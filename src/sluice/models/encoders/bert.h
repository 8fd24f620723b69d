#pragma once
#include <cstdint>

#include "sluice/models/token_results.h"
#include "sluice/train/network.h"

namespace sluice::models {

/// The sizes of a bidirectional encoder. The defaults equal BERT-base, except the context.
struct BertSizes {
  int64_t blocks = 12;
  int64_t heads = 12;         ///< Heads of an attention; divides `width`.
  int64_t width = 768;        ///< Elements of an embedding.
  int64_t hidden = 0;         ///< Elements of a hidden layer; 0: 4·width.
  int64_t context = 128;      ///< Tokens of a sample.
  int64_t vocabulary = 0;     ///< Different tokens.
  int64_t segment_types = 2;  ///< Different segments.
  /// Token of padding, whose row of the table gets no gradient as an input. -1: none.
  int64_t padding = 0;
  double dropout = 0;       ///< Probability, in training.
  double epsilon = 1e-12;   ///< Added to variances in norms.
  int64_t micro_batch = 8;  ///< Samples of a micro-batch.
  int64_t eval_batch = 8;   ///< Samples of an evaluation step.
  /// Rows of a chunk of the loss (train::VocabularyLossOptions::chunk_rows).
  int64_t loss_rows = 0;
  TokenResults results = TokenResults::kLosses;  ///< Results of evaluation.
};

/// BERT (Devlin et al., 2019) with the two losses of its pretraining. All fields are int32. The
/// fields (samples, context) are `tokens`, their `segments`, and `mask`, which is 0 for padding and
/// another number for tokens that attention sees. `labels` has the original token where the model
/// must predict it, and -100 elsewhere; `next` (samples) is 0 if the second segment follows the
/// first one in the text, otherwise 1 (data::random_masked_pairs() makes such samples).
///
/// `token_loss` is the mean cross entropy over the labels other than -100. `next_loss` is that of
/// `next`. An update divides by the number of these labels in all its micro-batches. The mean
/// `next_loss` of a micro-batch therefore counts as often as it has such labels, and not at all
/// without one. With equal numbers, or one micro-batch, the update is that of the sum of both
/// means, as in Hugging Face's BertForPreTraining.
///
/// Evaluation also returns `next_logits` (samples, 2). Its `next_loss` is the mean over samples.
/// The weights have the names of BertForPreTraining. Error{kUsage} unless sizes are at least 1, the
/// heads divide the width, padding is -1 or a token, dropout is in [0, 1) and epsilon is positive.
/// Error{kUsage} from build() if loss_rows is not a multiple of 32.
train::Network bert(const BertSizes& sizes);

}  // namespace sluice::models
