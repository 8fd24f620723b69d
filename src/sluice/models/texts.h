#pragma once
#include "sluice/data/text/tokens.h"
#include "sluice/models/model.h"

namespace sluice::models {

/// Returns windows of `context` tokens as samples of gpt(), with the fields "tokens" and "labels".
/// Training draws windows without end from `seed`, and an epoch has as many as do not overlap; a
/// test has those. Errors are those of data::random_windows().
SampleSet windows(const data::Tokens& tokens, data::Split split, int64_t context, uint64_t seed);

}  // namespace sluice::models
