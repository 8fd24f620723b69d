#pragma once
#include "sluice/ops/op.h"

namespace sluice::ops {

/// Options of attention(). A tensor is absent if its handle is empty.
struct AttentionOptions {
  /// Query i sees the keys 0 to p only, where p = i + offset + position is its position.
  bool causal = false;
  double scale = 0;  ///< Factor of each score; 0: 1/√size.
  /// A query at position p sees the keys p - window + 1 to p + window - 1 only; 0: all keys.
  int64_t window = 0;
  int64_t offset = 0;  ///< Position of query 0 among the keys.
  double dropout = 0;  ///< Probability that an element of the softmax becomes zero, in [0, 1).
  /// Broadcasts to (batch, heads, queries, keys). A bool says which keys a query sees; a mask of
  /// the dtype of q is added to the scores.
  Tensor mask = {};
  Tensor seed = {};      ///< For dropout: uint32 of shape (2,).
  Tensor position = {};  ///< Added to `offset`: an int32 or uint32 scalar.
};

const OpDef& attention_def();
const OpDef& attention_grad_def();
/// Whether a definition is attention_def(). Does not make that, which few programs need.
bool is_attention(const OpDef& def);
bool is_attention_grad(const OpDef& def);

/// Returns softmax(scale·q·kᵀ + mask)·v for each head: scaled dot product attention.
///
/// q is (batch, heads, queries, size), k is (batch, kv_heads, keys, size) and v is (batch,
/// kv_heads, keys, value size). kv_heads divides heads; heads/kv_heads successive heads of q share
/// a head of k and v. Operands may lack the heads, or the batch and the heads. The result is
/// (batch, heads, queries, value size), without the axes that q lacks.
///
/// Keys that `causal` or `window` hides take no part. A row of scores that are all masked or hidden
/// returns zeros and passes no gradient. Dropout depends on the seed and the index of the element
/// in the (batch, heads, queries, keys) scores. The scores of all queries never exist at once,
/// except in the gradient of a mask, which is that of matmul(), softmax() and matmul().
///
/// In f32 the result has the bits of matmul(), a product with the scale, softmax() and matmul(). In
/// the gradients of k and v, the queries of all heads that share them form one chain, in ascending
/// (head, query).
Tensor attention(TensorArg q, TensorArg k, TensorArg v, const AttentionOptions& options = {});

/// Rotary position embedding (Su et al., 2021): each position rotates pairs of elements by angles
/// of its own, so that products of queries and keys depend on the distance of their positions.
struct RotaryOptions {
  bool interleaved = false;
  bool inverse = false;
  static auto fields(auto&& use) {
    return use(field("interleaved", &RotaryOptions::interleaved,
                     "Whether a pair is (x[2i], x[2i + 1]), as in GPT-J and RoFormer. Otherwise it "
                     "is (x[i], x[i + n/2]) of n rotated elements, as in Llama and GPT-NeoX."),
               field("inverse", &RotaryOptions::inverse, "Rotate by the negative angles."));
  }
};

struct RotaryTableOptions {
  int64_t positions = 0;  ///< Rows of the table.
  int64_t size = 0;       ///< Elements of a head to rotate; even.
  double base = 10000;    ///< Pair i of position p rotates by p·base^(-2i/size).
};

const OpDef& rotary_def();

/// Returns the constant (positions, size) of `graph`: row p has the cosines of its size/2 angles
/// and then their sines. Error{kUsage} unless positions and size are positive, size is even and
/// base is positive and finite.
Tensor rotary_table(Graph& graph, const RotaryTableOptions& options);

/// Returns `length` rows of a table from row `first` on: the position of the first query, if
/// earlier keys are in a cache. Error{kUsage} unless the table has these rows.
Tensor rotary_rows(TensorArg table, int64_t first, int64_t length);
/// Does the same for a position that is data: an int32 or uint32 scalar. Rows outside of the table
/// are NaN.
Tensor rotary_rows(TensorArg table, TensorArg first, int64_t length);

/// Rotates the first n elements of each row of x (…, length, size) by the angles of its position.
/// The other elements stay. `table` is (length, n) with the dtype of x: rows of rotary_table().
/// A pair (a, b) becomes (a·cos - b·sin, b·cos + a·sin). x and table are differentiable.
Tensor rotary(TensorArg x, TensorArg table, const RotaryOptions& options = {});

}  // namespace sluice::ops
