#pragma once
#include <functional>
#include <optional>

#include "sluice/base/rng.h"
#include "sluice/ir/ir.h"

namespace sluice::property {

/// Random numbers of one decision.
class Dice {
 public:
  explicit Dice(Seed key) : key_(key) {}
  /// An integer in [0, n).
  int operator()(int n) {
    return static_cast<int>(random_bits(key_, next_++) % static_cast<uint32_t>(n));
  }
  /// True with probability 1 / n.
  bool one_in(int n) { return (*this)(n) == 0; }
  /// A number in [low, high).
  double real(double low, double high) { return low + (high - low) * random_unit(key_, next_++); }

 private:
  Seed key_;
  uint64_t next_ = 0;
};

/// A graph under construction and its tensors, which later ops may read.
struct Scope {
  Graph& graph;
  Tensors values;
  Tensors weights;  ///< Matrices that only layers and their updates read.
  int depth = 0;
  bool differentiable = false;  ///< Use only ops that have a gradient or block it.
  bool in_branch = false;       ///< Do not use streams.
  bool pure = false;            ///< Do not write in place.
  bool layered = false;         ///< Use many products with weights, and updates of weights.
  bool all_operators = false;   ///< Mostly use ops that add_operator() draws.
  int largest = 5;              ///< Largest random dimension.

  std::optional<Tensor> find(Dice& dice, const std::function<bool(const Tensor&)>& wanted) const;
  /// A random float32 tensor; at least one exists. Recent tensors are more likely.
  Tensor any(Dice& dice) const;
  /// A tensor with this spec: an existing one, or one made from an existing one.
  Tensor with_spec(Dice& dice, const TensorSpec& spec);
  Tensor with_shape(Dice& dice, const Shape& shape) { return with_spec(dice, {shape, f32, {}}); }
  /// A tensor that an op may write, i.e. not a constant.
  Tensor writable(Dice& dice) const;
  /// Whether its storage is that of a constant.
  bool is_constant(const Tensor& t) const;
  /// Adds a tensor for later ops, unless it has no elements or too many. Returns `t`.
  Tensor keep(Tensor t);
  /// Like keep(), but first reduces a tensor that broadcasting made too large.
  Tensor add(Tensor t);
  int64_t max_elements() const { return largest > 16 ? 1 << 16 : layered ? 2048 : 256; }
};

/// Draws a shape of rank 0 to 3 with dimensions from 1 to `largest`.
Shape random_shape(Dice& dice, int largest);
/// Draws values in [-1, 1), small integers, or seeds, depending on the dtype.
HostTensor random_array(const TensorSpec& spec, uint64_t seed);

/// Appends one op without a callee and adds its results. Returns whether it wrote in place.
bool add_plain_op(Scope& s, Dice& dice);
/// Does the same with a convolution, a pool or a norm.
bool add_image_op(Scope& s, Dice& dice);
/// Does the same with one of all operators, except undrawn_operators().
bool add_operator(Scope& s, Dice& dice);

}  // namespace sluice::property
