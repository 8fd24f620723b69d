#pragma once
#include <string>
#include <utility>
#include <vector>

#include "sluice/ir/call.h"
#include "sluice/ir/tensor.h"
#include "sluice/nn/dot_tree.h"

namespace sluice::nn {

/// Tensors by dotted name.
class NamedTensors : public BasicDotTree<Tensor, NamedTensors> {
 public:
  /// The leaves sorted by the name of the tensor (which may differ from its key).
  Tensors tensors() const;
  /// Dotted keys and tensors in insertion order: the same as `to_dict`.
  std::vector<std::pair<std::string, Tensor>> named_tensors() const { return to_dict(); }
  /// The tree with every tensor replaced by its partner in `mapping`; Error{kUsage} naming one that
  /// has none.
  NamedTensors remap(const TensorMap& mapping) const;
};

/// One line a tensor: "layer1.bias  Tensor[bias popxl.dtypes.float32 (32,)]".
std::string table(const NamedTensors& tensors);

/// The text of a Python tuple: "(Tensor[bias popxl.dtypes.float32 (32,)], …)".
std::string to_string(const Tensors& tensors);

}  // namespace sluice::nn
