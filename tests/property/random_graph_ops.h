#pragma once
#include <functional>
#include <optional>

#include "sluice/base/rng.h"
#include "sluice/ir/ir.h"

namespace sluice::property {

/// Numbers of one decision.
class Dice {
 public:
  explicit Dice(Seed key) : key_(key) {}
  /// In [0, n).
  int operator()(int n) {
    return static_cast<int>(random_bits(key_, next_++) % static_cast<uint32_t>(n));
  }
  /// True once in n.
  bool one_in(int n) { return (*this)(n) == 0; }
  /// In [low, high).
  double real(double low, double high) { return low + (high - low) * random_unit(key_, next_++); }

 private:
  Seed key_;
  uint64_t next_ = 0;
};

/// A graph that grows: its tensors so far are what ops read.
struct Scope {
  Graph& graph;
  Tensors values;
  Tensors weights;  ///< Matrices that only layers and their updates read.
  int depth = 0;
  bool differentiable = false;  ///< Only ops that have a gradient, or block it silently.
  bool in_branch = false;       ///< Streams are not used.
  bool pure = false;            ///< Nothing is written in place.
  bool layered = false;  ///< Products with matrices of its own, and their updates, are frequent.
  int largest = 5;       ///< Of the dimensions that are made up.

  std::optional<Tensor> find(Dice& dice, const std::function<bool(const Tensor&)>& wanted) const;
  /// A float32 tensor; there is always one. Later ones come up more often.
  Tensor any(Dice& dice) const;
  /// A tensor with this spec: one that is there, or one made from one.
  Tensor with_spec(Dice& dice, const TensorSpec& spec);
  Tensor with_shape(Dice& dice, const Shape& shape) { return with_spec(dice, {shape, f32, {}}); }
  /// A tensor that an op may write: not a constant.
  Tensor writable(Dice& dice) const;
  /// Whether its bytes are a constant's.
  bool is_constant(const Tensor& t) const;
  /// Adds a tensor to those that later ops read, unless it has too many elements or none.
  Tensor keep(Tensor t);
  /// The same; a tensor that broadcasting made too large is reduced first.
  Tensor add(Tensor t);
  int64_t most_elements() const { return largest > 16 ? 1 << 16 : layered ? 2048 : 256; }
};

/// Dimensions from 1 to `largest`, rank 0 to 3.
Shape random_shape(Dice& dice, int largest);
/// Values in [-1, 1), or small whole numbers, or seeds, by the dtype.
HostTensor random_array(const TensorSpec& spec, uint64_t seed);

/// Appends one op without a graph of its own and adds what it makes. Returns whether it wrote in
/// place.
bool add_plain_op(Scope& s, Dice& dice);

}  // namespace sluice::property
