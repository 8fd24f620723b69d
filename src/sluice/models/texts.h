#pragma once
#include "sluice/data/text/tokens.h"
#include "sluice/models/model.h"

namespace sluice::models {

/// Returns the same ids in a vocabulary of another size, read into memory. Error{kUsage} naming the
/// index for an id that is not in it.
data::Tokens with_vocabulary(const data::Tokens& tokens, int64_t vocabulary);

}  // namespace sluice::models
