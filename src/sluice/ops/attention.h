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
/// q is (batch, heads, queries, size), k is (batch, kv_heads, keys, size) and v is (batch, kv_heads,
/// keys, value size). kv_heads divides heads; heads/kv_heads successive heads of q share a head of k
/// and v. Operands may lack the batch, or the batch and the heads. The result is (batch, heads,
/// queries, value size), without the axes that q lacks.
///
/// Keys that `causal` or `window` hides take no part. A row of scores that are all masked or hidden
/// gives zeros and passes no gradient. Dropout depends on the seed and on the index of the element
/// in the (batch, heads, queries, keys) scores. The scores of all queries never exist at once.
///
/// In f32 the result has the bits of matmul(), a product with the scale, softmax() and matmul().
/// In the gradients of k and v, the queries of all heads that share them form one chain, in
/// ascending (head, query).
Tensor attention(TensorArg q, TensorArg k, TensorArg v, const AttentionOptions& options = {});

}  // namespace sluice::ops
