#pragma once
#include "sluice/ops/op.h"

/// What a reduction of many elements to one is made of (OpDef::parts): the chunks of the canonical order, then their
/// results.
namespace sluice::ops {

/// What a reduction combines its elements to.
enum class Combination : int32_t { kSum, kSumSquare, kSumMagnitude, kMax, kMin, kProd };
/// What becomes of that in the end.
enum class Finish : int32_t {
  kKeep,
  kDivide,  ///< By the count of elements.
  kRoot,
};

struct ReduceChunksOptions {
  Combination to = Combination::kSum;
  static constexpr auto fields = std::tuple{field("to", &ReduceChunksOptions::to)};
};

struct ReduceTotalOptions {
  Combination to = Combination::kSum;  ///< Of the elements: chunks of squares are added.
  Finish finish = Finish::kKeep;
  int64_t count = 0;  ///< Elements of all chunks.
  int64_t rank = 0;   ///< Of the result, whose axes have size 1.
  static constexpr auto fields = std::tuple{
      field("to", &ReduceTotalOptions::to), field("finish", &ReduceTotalOptions::finish),
      field("count", &ReduceTotalOptions::count), field("rank", &ReduceTotalOptions::rank)};
};

const OpDef& reduce_chunks_def();
const OpDef& reduce_total_def();

/// What the results of chunks are combined to.
inline Combination combination_of_chunks(Combination to) {
  const bool adds = to == Combination::kSumSquare || to == Combination::kSumMagnitude;
  return adds ? Combination::kSum : to;
}

}  // namespace sluice::ops
