#pragma once
#include <string>
#include <utility>
#include <vector>

#include "sluice/ir/call.h"
#include "sluice/ir/tensor.h"
#include "sluice/nn/basic_dot_tree.h"

namespace sluice::nn {

/// Tensors by dotted name.
class NamedTensors : public BasicDotTree<Tensor, NamedTensors> {
 public:
  /// Returns the leaves sorted by the name of the tensor, which may differ from its key.
  Tensors tensors() const;
  /// Returns the dotted keys and tensors in insertion order, like to_dict().
  std::vector<std::pair<std::string, Tensor>> named_tensors() const { return to_dict(); }
  /// Returns the tree with every tensor replaced by its partner in `mapping`. Error{kUsage} names a
  /// tensor without a partner.
  NamedTensors remap(const TensorMap& mapping) const;
};

/// Returns one line for each tensor: "layer1.bias  Tensor[bias popxl.dtypes.float32 (32,)]".
std::string table(const NamedTensors& tensors);

/// Returns the text of a Python tuple: "(Tensor[bias popxl.dtypes.float32 (32,)], …)".
std::string to_string(const Tensors& tensors);

}  // namespace sluice::nn
