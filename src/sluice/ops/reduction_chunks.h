#pragma once
#include "sluice/ops/op.h"

/// Parts of a reduction of many elements to one (OpDef::parts). The first reduces each chunk of the
/// canonical order; the second combines the results of the chunks.
namespace sluice::ops {

/// How a reduction combines its elements.
enum class Combination : int32_t {
  kSum,
  kSumSquare,
  kSumMagnitude,
  kMax,
  kMin,
  kProd,
  kSumSquareExtended,  ///< Sum of squares in extended range (extended.h).
  kSumExtended,        ///< Sum of numbers in extended range.
};
constexpr std::string_view words_of(Combination) {
  return "sum,sum_square,sum_magnitude,max,min,prod,sum_square_extended,sum_extended";
}
/// Last step of a reduction, after all elements are combined.
enum class Finish : int32_t {
  kKeep,
  kDivide,  ///< Divide by the count of elements.
  kRoot,
};
constexpr std::string_view words_of(Finish) { return "keep,divide,root"; }

struct ReduceChunksOptions {
  Combination to = Combination::kSum;
  static auto fields(auto&& use) { return use(field("to", &ReduceChunksOptions::to)); }
};

struct ReduceTotalOptions {
  Combination to = Combination::kSum;
  Finish finish = Finish::kKeep;
  int64_t count = 0;
  int64_t rank = 0;
  static auto fields(auto&& use) {
    return use(
        field(
            "to", &ReduceTotalOptions::to,
            "Combination of the elements. Their chunks are combined by combination_of_chunks(to)."),
        field("finish", &ReduceTotalOptions::finish),
        field("count", &ReduceTotalOptions::count, "Number of elements of all chunks."),
        field("rank", &ReduceTotalOptions::rank, "Rank of the result, whose axes have size 1."));
  }
};

const OpDef& reduce_chunks_def();
const OpDef& reduce_total_def();

/// How the results of chunks are combined: sums of squares or magnitudes are added.
inline Combination combination_of_chunks(Combination to) {
  if (to == Combination::kSumSquareExtended) return Combination::kSumExtended;
  const bool adds = to == Combination::kSumSquare || to == Combination::kSumMagnitude;
  return adds ? Combination::kSum : to;
}

}  // namespace sluice::ops
