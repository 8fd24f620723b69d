#include "sluice/ops/reduction_chunks.h"

#include <cmath>
#include <limits>

#include "sluice/base/checked.h"
#include "sluice/base/numbers/extended_range.h"
#include "sluice/base/reduce.h"
#include "sluice/ops/rules.h"
#include "sluice/ops/scalar_math.h"

namespace sluice::ops {
namespace {

void check_combination(Combination to, std::string_view name) {
  require(to >= Combination::kSum && to <= Combination::kSumExtended,
          "{} (C2): combination must be in [0, {}], got {}", name,
          static_cast<int>(Combination::kSumExtended), static_cast<int>(to));
}

std::vector<TensorSpec> infer_chunks(const OpView& op) {
  require_float(op.input(0), "reduce_chunks (C1): x");
  check_combination(op.options<ReduceChunksOptions>().to, "reduce_chunks");
  return {{{ceil_div(op.input(0).elements(), kReduceChunk)}, op.input(0).dtype, {}}};
}

std::vector<TensorSpec> infer_chunk_total(const OpView& op) {
  const auto o = op.options<ReduceTotalOptions>();
  require_float(op.input(0), "reduce_total (C1): chunks");
  check_combination(o.to, "reduce_total");
  require(o.finish >= Finish::kKeep && o.finish <= Finish::kRoot,
          "reduce_total (C2): finish must be in [0, {}], got {}", static_cast<int>(Finish::kRoot),
          static_cast<int>(o.finish));
  require(o.rank >= 0 && o.count >= 0,
          "reduce_total (C2): rank and count must not be negative, got {} and {}", o.rank, o.count);
  return {{Shape(std::vector<int64_t>(static_cast<size_t>(o.rank), 1)), op.input(0).dtype, {}}};
}

/// Combines n elements; load(i) is element i.
template <typename T, typename Load>
T combine(Combination to, int64_t n, Load load) {
  constexpr T kInfinity = std::numeric_limits<T>::infinity();
  switch (to) {
    case Combination::kSum:
      break;
    case Combination::kSumSquare:
      return canonical_sum<T>(n, [&](int64_t i) { return load(i) * load(i); });
    case Combination::kSumMagnitude:
      return canonical_sum<T>(n, [&](int64_t i) { return std::fabs(load(i)); });
    case Combination::kMax:
      return canonical_reduce(n, -kInfinity, load, math::max<T>);
    case Combination::kMin:
      return canonical_reduce(n, kInfinity, load, math::min<T>);
    case Combination::kProd:
      return canonical_reduce(n, T{1}, load, [](T a, T b) { return a * b; });
    case Combination::kSumSquareExtended:
      return canonical_reduce(
          n, T{}, [&](int64_t i) { return square_extended(load(i)); }, add_extended<T>);
    case Combination::kSumExtended:
      return canonical_reduce(n, T{}, load, add_extended<T>);
  }
  return canonical_sum<T>(n, load);
}

template <typename T>
void reference_chunks(const KernelArgs& k) {
  const auto to = k.options<ReduceChunksOptions>().to;
  const auto x = k.in<T>(0);
  const auto y = k.out<T>(0);
  const auto size = static_cast<int64_t>(x.size());
  for (size_t c = 0; c < y.size(); ++c) {
    const int64_t first = static_cast<int64_t>(c) * kReduceChunk;
    y[c] = combine<T>(to, std::min(kReduceChunk, size - first),
                      [&](int64_t i) { return x.data()[first + i]; });
  }
}

template <typename T>
void reference_chunk_total(const KernelArgs& k) {
  const auto o = k.options<ReduceTotalOptions>();
  const auto chunks = k.in<T>(0);
  const T total = combine<T>(combination_of_chunks(o.to), static_cast<int64_t>(chunks.size()),
                             [&](int64_t i) { return chunks.data()[i]; });
  T& y = k.out<T>(0)[0];
  switch (o.finish) {
    case Finish::kKeep:
      y = total;
      break;
    case Finish::kDivide:
      y = total / static_cast<T>(o.count);
      break;
    case Finish::kRoot:
      y = std::sqrt(total);
      break;
  }
}

}  // namespace

const OpDef& reduce_chunks_def() {
  static const OpDef def = [] {
    OpDef d;
    d.type = "ReduceChunks";
    d.name = "reduce_chunks";
    d.audience = Audience::kOperators;
    d.doc =
        "The results for each 65,536 elements of x, in row-major order, each in the canonical "
        "order: the sum (0), the sum of squares (1) or of magnitudes (2), the largest (3) or "
        "smallest (4), the product (5), or, in extended range, the sum of squares (6) or the sum "
        "(7). (C1) x is floating point. (C2) The combination is one "
        "of these.";
    d.inputs = {{"x"}};
    d.outputs = {"chunks"};
    d.set_options(ReduceChunksOptions{});
    d.infer = infer_chunks;
    d.reference_float = reference_chunks<float>;
    d.reference_double = reference_chunks<double>;
    d.flops = [](const OpView& op) { return static_cast<double>(op.input(0).elements()); };
    const auto to = [](Combination c) { return to_attrs(ReduceChunksOptions{c}); };
    for (const auto c : {Combination::kSum, Combination::kSumSquare, Combination::kSumMagnitude,
                         Combination::kMax, Combination::kMin, Combination::kProd,
                         Combination::kSumSquareExtended, Combination::kSumExtended})
      d.samples.push_back({.inputs = {f32_spec({3, 5})}, .options = to(c), .domain = {0.5, 1.5}});
    d.samples.push_back({.inputs = {f32_spec({2, 70000})}, .domain = {0.5, 1.5}});
    d.must_fail = {{"(C1)", {i32_spec({4})}, {}},
                   {"(C2)", {f32_spec({4})}, to(static_cast<Combination>(9))}};
    return d;
  }();
  return def;
}

const OpDef& reduce_total_def() {
  static const OpDef def = [] {
    OpDef d;
    d.type = "ReduceTotal";
    d.name = "reduce_total";
    d.audience = Audience::kOperators;
    d.doc =
        "The result for all elements from those of their chunks: combined, then as it is (0), "
        "divided by the count of elements (1), or its root (2). (C1) The chunks are floating "
        "point. "
        "(C2) Combination and finish are known, rank and count are not negative.";
    d.inputs = {{"chunks"}};
    d.outputs = {"y"};
    d.set_options(ReduceTotalOptions{});
    d.infer = infer_chunk_total;
    d.reference_float = reference_chunk_total<float>;
    d.reference_double = reference_chunk_total<double>;
    d.flops = [](const OpView& op) { return static_cast<double>(op.input(0).elements()); };
    const auto with = [](Combination to, Finish finish, int64_t rank) {
      return to_attrs(ReduceTotalOptions{to, finish, 100, rank});
    };
    d.samples = {
        {.inputs = {f32_spec({5})}},
        {.inputs = {f32_spec({3})},
         .options = with(Combination::kSumSquare, Finish::kRoot, 2),
         .domain = {0.5, 1.5}},
        {.inputs = {f32_spec({21})}, .options = with(Combination::kSum, Finish::kDivide, 0)},
        {.inputs = {f32_spec({4})}, .options = with(Combination::kMin, Finish::kKeep, 1)},
        {.inputs = {f32_spec({4})}, .options = with(Combination::kMax, Finish::kKeep, 0)},
        {.inputs = {f32_spec({4})}, .options = with(Combination::kProd, Finish::kKeep, 0)},
        {.inputs = {f32_spec({4})},
         .options = with(Combination::kSumSquareExtended, Finish::kKeep, 0),
         .domain = {0.5, 1.5}}};
    d.must_fail = {{"(C1)", {i32_spec({4})}, {}},
                   {"(C2)", {f32_spec({4})}, with(static_cast<Combination>(9), Finish::kKeep, 0)},
                   {"(C2)", {f32_spec({4})}, with(Combination::kSum, static_cast<Finish>(9), 0)},
                   {"(C2)", {f32_spec({4})}, with(Combination::kSum, Finish::kKeep, -1)}};
    return d;
  }();
  return def;
}

std::vector<const OpDef*> reduce_chunks_ops() {
  return {&reduce_chunks_def(), &reduce_total_def()};
}

}  // namespace sluice::ops
