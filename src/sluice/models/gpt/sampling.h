#pragma once
#include <cstdint>
#include <optional>

#include "sluice/ir/ir.h"

/// The choice of a token by its logit.
namespace sluice::models::internal {

/// Options of a choice, as tensors: one program has all of them. The tensors are scalars except
/// `seed`.
struct SamplingInputs {
  Tensor seed;         ///< uint32 (2,): that of ops/random.h.
  Tensor temperature;  ///< float32: divisor of the logits; 1 without noise.
  Tensor noise;        ///< float32: 1 draws a token, 0 chooses the largest logit.
  Tensor filters;      ///< int32: not 0 if top_k or top_p excludes tokens.
  Tensor last_rank;    ///< int32: top_k - 1, less than the number of tokens.
  Tensor mass;         ///< float32: top_p, or 2 for all tokens.
};

/// Returns the chosen token, an int32 scalar. `logits` is (tokens) of float32. `position` is the
/// int32 position of the token that is chosen; it selects the random numbers.
///
/// z = logits / temperature. The token with the largest z + noise·g is chosen, the lowest one of
/// several. g = -ln(-ln u) for each token, where u is random_uniform() of the seed folded with
/// the position, at least 1e-9. So each token has its probability in softmax(z) (Gumbel's method).
/// With filters, first the tokens whose z is below the top_k-th largest are excluded. Then tokens
/// are ordered by z, largest first, the lower one of two equals first. A token is excluded if the
/// probabilities of those before it, in the softmax of the remaining tokens, add up to at least
/// `mass`.
Tensor sample_token(Graph& graph, const Tensor& logits, const Tensor& position,
                    const SamplingInputs& inputs);

}  // namespace sluice::models::internal
