#pragma once
#include <cstdint>

#include "sluice/data/text/tokens.h"

namespace sluice::data {

/// Special tokens of the samples. They follow the tokens of the text, in this order.
enum class PairToken : uint8_t { kPadding, kClass, kSeparator, kMask };
inline constexpr int64_t kPairTokens = 4;

/// Label of tokens that are not predicted.
inline constexpr int32_t kNotPredicted = -100;

/// Minimum number of tokens of a sample: three special tokens and two segments.
inline constexpr int64_t kMinPairContext = 5;

struct MaskedPairOptions {
  int64_t context = 128;  ///< Tokens of a sample, >= 5.
  uint64_t seed = 0;      ///< Seed of everything that is drawn.
};

// Samples for the pretraining of BERT (Devlin et al., 2019): masked language modelling and next
// sentence prediction. They have the fields "tokens", "segments", "mask" and "labels", i32
// (context), and "next", i32 ().
//
// The tokens are a class token, a first segment, a separator, a second segment and a separator.
// "segments" is 1 in the second segment and its separator. If "next" is 0, the second segment
// follows the first one in the text. If it is 1, it begins at another token, which is drawn; it may
// overlap the first one. One sample in ten is shorter than the context. Padding follows it, where
// "mask" is 0.
//
// 15 % of the tokens of the text are predicted, and at least one: "labels" has them, and
// kNotPredicted elsewhere. 80 % of these are replaced by the mask token and 10 % by a random token;
// the others are unchanged.
//
// The datasets are indexed. Sample k is a pure function of (seed, k). Error{kUsage} if `context` is
// below 5. With fewer than context - 2 tokens, Error{kBadFile} naming the file, or Error{kUsage}
// for tokens in memory. Iterators throw the errors of Tokens::read().

/// Draws samples without end, which begin anywhere in the text.
Dataset random_masked_pairs(const Tokens& tokens, const MaskedPairOptions& options = {});
/// Cuts the text into samples whose first segments do not overlap, for evaluation. Drops tokens at
/// the end that do not fill a sample.
Dataset consecutive_masked_pairs(const Tokens& tokens, const MaskedPairOptions& options = {});

}  // namespace sluice::data
