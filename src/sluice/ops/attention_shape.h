#pragma once
#include <algorithm>
#include <vector>

#include "sluice/ir/op_def.h"

/// The sizes and addresses of attention, for its reference and other kernels.
namespace sluice::ops {

/// The options of the operators `attention` and `attention_grad`.
struct AttentionOpOptions {
  bool causal = false;
  double scale = 1;
  int64_t window = 0;
  int64_t offset = 0;
  double dropout = 0;
  bool mask = false;
  bool seed = false;
  bool position = false;
  std::vector<int64_t> sizes = {};
  /// With `sizes`: an offset and the strides of batch, head and row, in elements, of each operand
  /// that is cut into heads: q, k and v, in attention_grad after the gradient. The compiler sets
  /// both, so that transposed and sliced operands are read in place.
  std::vector<int64_t> rows = {};
  bool heads_last = false;

  static auto fields(auto&& use) {
    using O = AttentionOpOptions;
    return use(
        field("causal", &O::causal, "Query i sees the keys up to its position only."),
        field("scale", &O::scale, "Factor of each score."),
        field("window", &O::window, "Distance from which on keys are hidden; 0: none."),
        field("offset", &O::offset, "Position of query 0 among the keys."),
        field("dropout", &O::dropout, "Probability that an element of the softmax becomes zero."),
        // The operands follow v, or in attention_grad the sums, in this order.
        field("mask", &O::mask, "An operand is a mask."),
        field("seed", &O::seed, "An operand is the seed of dropout."),
        field("position", &O::position, "An operand is added to offset."),
        field("sizes", &O::sizes,
              "batch, heads, kv_heads, queries, keys, size, value size; empty: those of the "
              "shapes."),
        field("rows", &O::rows, "Offsets and strides of the operands; empty without sizes."),
        field("heads_last", &O::heads_last,
              "The results are (batch, queries or keys, heads, size)."));
  }
};

/// The rows of a tensor that is cut into heads, in elements. The elements of a row follow each
/// other.
struct HeadRows {
  int64_t offset = 0;
  int64_t batch = 0;  ///< Stride of the batch, and so on.
  int64_t head = 0;
  int64_t row = 0;
  int64_t at(int64_t b, int64_t h) const { return offset + b * batch + h * head; }
};

/// The keys that a query sees: [begin, end).
struct KeyRange {
  int64_t begin = 0;
  int64_t end = 0;
};

struct AttentionShape {
  /// Error{kUsage} naming a constraint of the operator.
  explicit AttentionShape(const OpView& op);

  int64_t batch = 1, heads = 1, kv_heads = 1, queries = 1, keys = 1, size = 1, value_size = 1;
  HeadRows grad, q, k, v;  ///< Operands; `grad` is that of attention_grad.
  HeadRows y, dq, dk, dv;  ///< Results.
  HeadRows mask;           ///< Strides of the mask, 0 on axes along which it broadcasts.
  int64_t mask_key = 0;    ///< Its stride along the keys.
  /// The operand index of each extra operand; -1: absent.
  int mask_input = -1, seed_input = -1, position_input = -1;

  int64_t group() const { return heads / kv_heads; }  ///< Heads of q that share a head of k.
  /// Index of the score of key 0 in the scores of all queries.
  int64_t score(int64_t b, int64_t h, int64_t query) const {
    return ((b * heads + h) * queries + query) * keys;
  }
  /// The keys that the query at a position sees.
  KeyRange seen(const AttentionOpOptions& o, int64_t position) const {
    const auto clamp = [&](int64_t key) { return std::clamp<int64_t>(key, 0, keys); };
    KeyRange range{0, keys};
    if (o.window > 0) range = {clamp(position - o.window + 1), clamp(position + o.window)};
    if (o.causal) range.end = clamp(position + 1);
    range.end = std::max(range.end, range.begin);
    return range;
  }
  /// First index of the sum over the keys of a range. Sums have the order of all keys, in which
  /// hidden keys are zeros (base/reduce.h).
  static int64_t sum_begin(KeyRange range);

 private:
  // Set the sizes and rows of the operands from their shapes, or from the options. `first`: the
  // index of q.
  void set_whole(const OpView& op, int first);
  void set_strided(const OpView& op, const AttentionOpOptions& o, int first);
  // Sets the operands that are optional, from operand `next` on.
  void set_optional(const OpView& op, const AttentionOpOptions& o, int next);
};

}  // namespace sluice::ops
