#pragma once
#include <utility>
#include <vector>

#include "../random_graph_ops.h"

namespace sluice::property {

/// Draws operands for ops of one decision, and adds their results to a scope.
struct Draw {
  Scope& s;
  Dice& dice;

  /// float32, float16 or bfloat16.
  DType float_dtype();
  /// int32, uint32 or uint8.
  DType integer_dtype();
  /// A floating-point tensor of at most `max_elements` elements in [-4, 4].
  Tensor number(int64_t max_elements = 1024);
  /// Like number(), with at least one axis.
  Tensor vector(int64_t max_elements = 1024);
  /// A tensor of this spec with elements in a domain: derived from a tensor of the scope, or a
  /// constant.
  Tensor operand(const TensorSpec& spec, std::pair<double, double> domain = {-2, 2});
  /// A tensor of this spec that an op may write.
  Tensor target(const TensorSpec& spec, std::pair<double, double> domain = {-2, 2});
  /// Indices from -1 to `size`: the first and the last one are out of range.
  Tensor indices(const Shape& shape, int64_t size);
  /// An axis of `t`, sometimes counted from the end.
  int64_t axis(const Tensor& t);
  /// Some axes of `t`, in ascending order, possibly counted from the end.
  std::vector<int64_t> axes(const Tensor& t);
  /// Adds a result for later ops: itself or converted to float32, possibly clipped.
  void keep(Tensor t);
  /// Writes through a view, sometimes, and adds a value computed from it. Later ops do not use the
  /// view: a call must not write elements through two of its operands.
  void use_view(const Tensor& view);

 private:
  Tensor number_operand(const TensorSpec& spec, std::pair<double, double> domain);
  Tensor integer_operand(const TensorSpec& spec, std::pair<double, double> domain);
  HostTensor array(const TensorSpec& spec, std::pair<double, double> domain);
};

/// Appends an operator with the shapes and options of one of its samples. Returns whether it wrote
/// in place.
bool add_sample(Draw& d);
/// Appends an elementwise operator on a random shape, with operands that broadcast and any dtype.
bool add_elementwise(Draw& d);

}  // namespace sluice::property
