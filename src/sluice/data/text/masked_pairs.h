#pragma once
#include <cstdint>

#include "sluice/data/text/tokens.h"

namespace sluice::data {

/// Tokens that masked_pairs() adds to a vocabulary, at its end and in this order.
enum class PairToken : uint8_t { kPadding, kClass, kSeparator, kMask };
inline constexpr int64_t kPairTokens = 4;

/// Label of tokens that are not predicted.
inline constexpr int32_t kNotPredicted = -100;

struct MaskedPairOptions {
  int64_t context = 128;  ///< Tokens of a sample, >= 5.
  uint64_t seed = 0;      ///< Seed of everything that is drawn.
};

// Samples for the pretraining of BERT (Devlin et al., 2019), with the fields "tokens", "segments",
// "mask" and "labels", i32 (context), and "next", i32 (). The tokens of a sample are a class token,
// a first segment, a separator, a second segment and a separator. "segments" is 1 in the second
// segment and its separator. The second segment follows the first one in the text if "next" is 0;
// it is from anywhere else if "next" is 1. One sample in ten is shorter than the context; padding
// follows, where "mask" is 0. Of the tokens of the text, 15 % are predicted, and at least one:
// "labels" has them, and kNotPredicted elsewhere. Of these, 80 % are replaced by the mask token and
// 10 % by a random token.
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
