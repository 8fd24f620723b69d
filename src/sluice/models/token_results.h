#pragma once
#include <cstdint>

namespace sluice::models {

/// The results of the evaluation of a model that predicts tokens.
enum class TokenResults : uint8_t {
  kLosses,  ///< `losses` and `predicted` (samples, context): the cross entropy of each label, and
            ///< the token with the largest logit. Evaluation reads the labels.
  kLogits,  ///< `logits` (samples, context, vocabulary).
};

}  // namespace sluice::models
