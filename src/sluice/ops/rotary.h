#pragma once
#include "sluice/ops/op.h"

/// Rotary position embedding (Su et al., 2021): each position rotates pairs of elements by angles
/// of its own, so that products of queries and keys depend on the distance of their positions.
namespace sluice::ops {

struct RotaryOptions {
  /// Whether a pair is (x[2i], x[2i + 1]), as in GPT-J and RoFormer. Otherwise it is (x[i], x[i +
  /// n/2]) of n rotated elements, as in Llama and GPT-NeoX.
  bool interleaved = false;
  bool inverse = false;  ///< Rotate by the negative angles.
  static auto fields(auto&& use) {
    return use(field("interleaved", &RotaryOptions::interleaved),
               field("inverse", &RotaryOptions::inverse));
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
