#pragma once
#include "sluice/data/text/tokens.h"
#include "sluice/models/model.h"

namespace sluice::models {

/// Returns the same ids in a vocabulary of another size, read into memory. Error{kUsage} naming the
/// index for an id that is not in it.
data::Tokens with_vocabulary(const data::Tokens& tokens, int64_t vocabulary);

/// Returns windows of `context` tokens as samples of gpt(), with the fields "tokens" and "labels".
/// Training draws windows without end from `seed`. A test has the windows that do not overlap, and
/// an epoch of training has as many. Errors as for data::random_windows().
SampleSet windows(const data::Tokens& tokens, data::Split split, int64_t context, uint64_t seed);

}  // namespace sluice::models
